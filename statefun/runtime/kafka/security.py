# SPDX-License-Identifier: Apache-2.0
r"""Translates Kafka's security settings from the Java client's names to librdkafka's.

Both clients read the same ``properties`` of a module file: Spark's source is a Java client;
librdkafka publishes and looks up offsets. A setting without a counterpart is an error: a client that
ignored it would be less secure than intended. See "Security" in Kafka's documentation and
librdkafka's CONFIGURATION.md.

>>> jaas = 'org.apache.kafka.common.security.scram.ScramLoginModule required '
>>> translate("egress a/b", {"sasl.jaas.config": jaas + 'username="Ada" password="\\"x\\"";'})
{'sasl.username': 'Ada', 'sasl.password': '"x"'}
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from statefun.sdk.errors import ConfigurationError

_PREFIXES = ("security.", "sasl.", "ssl.")
_SAME = frozenset(
    {
        "sasl.kerberos.kinit.cmd",
        "sasl.kerberos.min.time.before.relogin",
        "sasl.kerberos.service.name",
        "sasl.mechanism",
        "sasl.oauthbearer.token.endpoint.url",
        "security.protocol",
        "ssl.key.password",
    }
)
"""Settings that have the same name in both clients."""
_SECRET = re.compile(r"password|secret|jaas|token|\.key\b|\.pem$|oauthbearer\.config")
_OAUTH_HANDLER = "OAuthBearerLoginCallbackHandler"
_JAAS = re.compile(
    r"""\s* (?P<module>[\w.$]+) \s+ (?:required|requisite|sufficient|optional)
    (?P<options>(?:\s+ [\w.-]+ \s*=\s* (?:"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|[^\s;"']+))*) \s* ; \s*""",
    re.VERBOSE,
)
_OPTION = re.compile(
    r"""([\w.-]+) \s*=\s* (?:"((?:\\.|[^"\\])*)"|'((?:\\.|[^'\\])*)'|([^\s;"']+))""", re.VERBOSE
)

ClientSettings = dict[str, str]


def translate(owner: str, properties: Mapping[str, str]) -> ClientSettings:
    """Translate the security settings among Kafka properties; leave other properties as they are.

    Args:
        owner: the component that has the properties, for error texts.
        properties: settings with the Java client's names; settings with librdkafka's names are kept.

    Raises:
        ConfigurationError: if librdkafka has no counterpart of a security setting.
    """
    settings: ClientSettings = {}
    for name, value in properties.items():
        if not name.startswith(_PREFIXES) or name in _SAME:
            settings[name] = value
        elif name in _TRANSLATORS:
            try:
                settings |= _TRANSLATORS[name](value, properties)
            except ValueError as error:  # not chained: a traceback would show the value
                raise ConfigurationError(f"{owner}: property {name}: {error}") from None
        elif name in _CONSUMED:
            continue
        elif name in _LIBRDKAFKA:
            settings[name] = value
        else:
            raise ConfigurationError(
                f"{owner}: property {name} has no counterpart in librdkafka, which publishes and looks "
                "up offsets; remove the property, or look for another setting in librdkafka's "
                "CONFIGURATION.md"
            )
    return settings


def is_secret(name: str) -> bool:
    """Return whether the value of a setting of a Kafka client is secret.

    >>> is_secret("sasl.password"), is_secret("sasl.username")
    (True, False)
    """
    return _SECRET.search(name) is not None


def redacted(text: str, settings: Mapping[str, object]) -> str:
    """Replace the values of secret ``settings`` in ``text`` by dots.

    >>> redacted('no user "me" with password "x1"', {"sasl.username": "me", "sasl.password": "x1"})
    'no user "me" with password "..."'
    """
    for name, value in settings.items():
        if is_secret(name) and isinstance(value, str) and value:
            text = text.replace(value, "...")
    return text


def _jaas(text: str, properties: Mapping[str, str]) -> ClientSettings:
    match = _JAAS.fullmatch(text)
    if match is None:
        raise ValueError(
            "must have the form '<login module> required <name>=\"<value>\" ...;', with one login module"
        )
    module = match["module"].rpartition(".")[2]
    options = {
        name: re.sub(r"\\(.)", r"\1", double or single) or plain
        for name, double, single, plain in _OPTION.findall(match["options"])
    }
    if module not in _LOGIN_MODULES:
        raise ValueError(
            f"the login module must be one of {', '.join(_LOGIN_MODULES)}, but is {module}"
        )
    return _LOGIN_MODULES[module](options, properties)


def _password(options: ClientSettings, _properties: Mapping[str, str]) -> ClientSettings:
    return {
        "sasl.username": _required(options, "username"),
        "sasl.password": _required(options, "password"),
    }


def _oauth(options: ClientSettings, properties: Mapping[str, str]) -> ClientSettings:
    if "sasl.oauthbearer.token.endpoint.url" not in properties:
        raise ValueError(
            "OAuth needs the property sasl.oauthbearer.token.endpoint.url, the URL from which tokens are fetched"
        )
    settings = {
        "sasl.oauthbearer.method": "oidc",
        "sasl.oauthbearer.client.id": _required(options, "clientId"),
        "sasl.oauthbearer.client.secret": _required(options, "clientSecret"),
    }
    if "scope" in options:
        settings["sasl.oauthbearer.scope"] = options["scope"]
    return settings


def _kerberos(options: ClientSettings, properties: Mapping[str, str]) -> ClientSettings:
    settings = {
        "sasl.kerberos.keytab": _required(options, "keyTab"),
        "sasl.kerberos.principal": _required(options, "principal"),
    }
    if "serviceName" in options and "sasl.kerberos.service.name" not in properties:
        settings["sasl.kerberos.service.name"] = options["serviceName"]
    return settings


def _required(options: ClientSettings, name: str) -> str:
    if not options.get(name):
        raise ValueError(f"the login module needs the option {name}")
    return options[name]


_LOGIN_MODULES: dict[str, Callable[[ClientSettings, Mapping[str, str]], ClientSettings]] = {
    "PlainLoginModule": _password,
    "ScramLoginModule": _password,
    "OAuthBearerLoginModule": _oauth,
    "Krb5LoginModule": _kerberos,
}


def _truststore(location: str, properties: Mapping[str, str]) -> ClientSettings:
    if properties.get("ssl.truststore.type", "JKS").upper() != "PEM":
        raise ValueError(
            "librdkafka reads only certificates in PEM form: convert the certificates (keytool -exportcert "
            "-rfc), and set ssl.truststore.type=PEM"
        )
    return {"ssl.ca.location": location}


def _keystore(location: str, properties: Mapping[str, str]) -> ClientSettings:
    kind = properties.get("ssl.keystore.type", "JKS").upper()
    if kind == "PEM":
        return {"ssl.certificate.location": location, "ssl.key.location": location}
    if kind == "PKCS12":
        settings = {"ssl.keystore.location": location}
        if "ssl.keystore.password" in properties:
            settings["ssl.keystore.password"] = properties["ssl.keystore.password"]
        return settings
    raise ValueError(
        f"a keystore of type {kind} cannot be read by librdkafka: convert the keystore to PKCS12 (keytool "
        "-importkeystore -deststoretype PKCS12), and set ssl.keystore.type=PKCS12"
    )


def _handler(value: str, _properties: Mapping[str, str]) -> ClientSettings:
    if not value.endswith(_OAUTH_HANDLER):
        raise ValueError(f"only Kafka's own {_OAUTH_HANDLER} has a counterpart in librdkafka")
    return {}


def _identification(value: str, _properties: Mapping[str, str]) -> ClientSettings:
    return {"ssl.endpoint.identification.algorithm": value or "none"}


_TRANSLATORS: dict[str, Callable[[str, Mapping[str, str]], ClientSettings]] = {
    "sasl.jaas.config": _jaas,
    "sasl.login.callback.handler.class": _handler,
    "ssl.endpoint.identification.algorithm": _identification,
    "ssl.keystore.certificate.chain": lambda value, _: {"ssl.certificate.pem": value},
    "ssl.keystore.key": lambda value, _: {"ssl.key.pem": value},
    "ssl.keystore.location": _keystore,
    "ssl.truststore.certificates": lambda value, _: {"ssl.ca.pem": value},
    "ssl.truststore.location": _truststore,
}
_CONSUMED = frozenset(
    {
        "ssl.keystore.password",
        "ssl.keystore.type",
        "ssl.truststore.password",
        "ssl.truststore.type",
    }
)
"""Settings that have no translation of their own: translations of other settings use their values."""
_LIBRDKAFKA = frozenset(
    {
        "sasl.mechanisms",
        "sasl.oauthbearer.client.id",
        "sasl.oauthbearer.client.secret",
        "sasl.oauthbearer.config",
        "sasl.oauthbearer.extensions",
        "sasl.oauthbearer.method",
        "sasl.oauthbearer.scope",
        "sasl.password",
        "sasl.username",
        "ssl.ca.location",
        "ssl.ca.pem",
        "ssl.certificate.location",
        "ssl.certificate.pem",
        "ssl.cipher.suites",
        "ssl.crl.location",
        "ssl.curves.list",
        "ssl.key.location",
        "ssl.key.pem",
        "ssl.sigalgs.list",
    }
)
"""librdkafka's own names of settings, which are allowed as well as Java's."""
