# SPDX-License-Identifier: Apache-2.0
"""Translates clientConfigProperties, which AWS's Java clients define, into settings of botocore."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import attrs

from statefun.components import Key, Node, Problems, ScalarNode, choice, integer, properties, text
from statefun.sdk.nearest_names import nearest_name

MILLIS = 1000


@attrs.frozen
class _Property:
    name: str
    """The setting of botocore's client; an empty string if botocore has no such setting."""
    read: Callable[[Node, Problems], Any]
    convert: Callable[[Any], Any] = lambda value: value


def _seconds(millis: int) -> float:
    return millis / MILLIS


_TIME = integer(1)
_CLIENT = {
    "ConnectionTimeout": _Property("connect_timeout", _TIME, _seconds),
    "SocketTimeout": _Property("read_timeout", _TIME, _seconds),
    "MaxConnections": _Property("max_pool_connections", integer(1, 10_000)),
    "UserAgentPrefix": _Property("user_agent_extra", text),
    "Proxy": _Property("proxies", text, lambda url: {"http": url, "https": url}),
}
THREADS = "ThreadPoolSize"
_PRODUCER = {
    THREADS: _Property("", integer(1, 1_000)),
    # Accepted without effect: requests always share threads here.
    "ThreadingModel": _Property("", choice("ThreadingModel", {"pooled": "", "per_request": ""})),
    "RequestTimeout": _Property("read_timeout", _TIME, _seconds),
}
PROPERTIES = Key(
    "clientConfigProperties",
    properties,
    f"client properties, 'name: value' each, of {', '.join(_CLIENT)} (times in ms)",
    default=[],
    example=[{"MaxConnections": 10}],
)
EGRESS_PROPERTIES = attrs.evolve(
    PROPERTIES,
    doc=f"client properties, 'name: value' each, of {', '.join(_CLIENT | _PRODUCER)} (times in ms)",
)


def client_settings(
    nodes: Mapping[str, Node], problems: Problems, *, is_egress: bool = False
) -> dict[str, Any]:
    """Return client properties as settings of botocore's client; report unknown properties.

    Args:
        nodes: the nodes of the properties in the module file, by name.
        problems: receives the problems of the module file.
        is_egress: whether properties that only egresses have are known, too. One of them,
            ``ThreadPoolSize``, is in the result under this name: botocore has no such setting.
    """
    properties_by_name = _CLIENT | (_PRODUCER if is_egress else {})
    by_lower_case = {name.lower(): name for name in properties_by_name}
    settings: dict[str, Any] = {}
    for name, node in nodes.items():
        if not isinstance(node, ScalarNode):
            continue  # reported by the reader of the key
        property_ = properties_by_name.get(by_lower_case.get(name.lower(), ""))
        if property_ is None:
            near = nearest_name(name, properties_by_name)
            hint = "" if near is None else f"did you mean {near!r}? "
            sentence = (
                f"unknown client property {name!r}; {hint}known are {', '.join(properties_by_name)}"
            )
            problems.report(node.location, node.path, sentence)
            continue
        value = property_.convert(property_.read(node, problems))
        if property_.name or name.lower() == THREADS.lower():
            settings[property_.name or THREADS] = value
    return settings
