# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import importlib
import inspect
import json
import subprocess
import sys
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
from published_package import PROGRAMS, published_python

import statefun
from statefun import SdkAddress, StatefulFunctions, TypedValue, TypeSerializer
from statefun.protocol.request_reply_pb2 import ToFunction

INTERNAL = {
    "core": {"UserTypeSerializer"},
    "messages": {"PRIMITIVE_GETTERS"},
    "request_reply_v3": {
        *("DelayedMessage", "UserFacingContext", "sdk_address_from_pb"),
        *("collect_success", "collect_failure", "collect_messages", "collect_delayed"),
        *("collect_cancellations", "collect_egress", "collect_mutations"),
    },
    "storage": {
        *("Cell", "property_named", "storage_constructor", "storage_missing_attribute"),
    },
    "utils": {"to_typed_value_deduce"},
    "wrapper_types": {"ProtobufWrappingType", "ProtobufWrappingTypeSerializer"},
}
"""How the published package does its work, which no program has to know."""
INTENDED = ["TypeSerializer: deserialize(byte)"]
"""Differences that stay: the runtime alone calls a serializer, by position."""
INSTANCES = {"address", "caller", "fun", "is_async", "storage", "storage_spec", "typename"}
"""Members that only instances have."""


@pytest.fixture(scope="module")
def surface() -> dict[str, Any]:
    """What the published package offers."""
    command = [*published_python(), str(PROGRAMS / "surface.py")]
    said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    found: dict[str, Any] = json.loads(said)
    return found


def test_public_names_are_there(surface: dict[str, Any]) -> None:
    """All of them, and with ``from statefun import *``."""
    assert len(surface["public"]) > 20
    assert set(surface["public"]) <= set(statefun.__all__)


def test_members_and_parameters_have_their_names(surface: dict[str, Any]) -> None:
    """Programs may give every argument by its name."""
    lacking = [
        f"{name}: {lack}"
        for name, published in surface["public"].items()
        for lack in _lacking(getattr(statefun, name), published)
    ]

    assert lacking == INTENDED


def _lacking(ours: Any, published: dict[str, Any]) -> Iterator[str]:
    yield from _without(ours, published["parameters"])
    for member, parameters in published["members"].items():
        if not _has(ours, member):
            yield member
        else:
            for parameter in _without(getattr(ours, member, None), parameters):
                yield f"{member}({parameter})"


def _has(class_: Any, member: str) -> bool:
    """Return whether instances of a class have a member."""
    return hasattr(class_, member) or member in INSTANCES


def _without(ours: Any, names: list[str]) -> list[str]:
    if not callable(ours) or not names:
        return []
    try:
        parameters = inspect.signature(ours).parameters
    except (TypeError, ValueError):
        return []
    if any(each.kind is inspect.Parameter.VAR_KEYWORD for each in parameters.values()):
        return []
    return [name for name in names if name not in parameters]


def test_names_are_found_in_their_old_modules(surface: dict[str, Any]) -> None:
    """Each module warns, and says where its names are now."""
    for module, names in surface["modules"].items():
        sys.modules.pop(f"statefun.{module}", None)
        with pytest.warns(
            DeprecationWarning,
            match=rf"^statefun\.{module} is a module of apache-flink-statefun; import its names",
        ) as warned:
            ours = importlib.import_module(f"statefun.{module}")
        lacking = {name for name in names if not hasattr(ours, name)}
        assert lacking <= INTERNAL.get(module, set()), module
        assert warned[0].filename == __file__


def printed(code: str) -> str:
    """Return what a program prints in a process of its own."""
    command = [sys.executable, "-c", code]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def test_old_modules_are_attributes_of_the_package() -> None:
    """After ``import statefun`` alone, as in the published package."""
    code = (
        "import statefun, warnings; warnings.simplefilter('ignore');"
        "print(statefun.request_reply_v3.RequestReplyHandler is statefun.RequestReplyHandler)"
    )

    assert printed(code) == "True\n"


def test_nothing_of_ours_imports_the_old_modules() -> None:
    """Their warning would be about us."""
    code = (
        "import statefun.cli, statefun.runtime.run, statefun.serving.asgi, sys;"
        "print([name for name in sys.modules if name.startswith('statefun.published')])"
    )

    assert printed(code) == "[]\n"


def test_all_public_names_come_without_spark() -> None:
    """Functions that are served over HTTP need none of it."""
    code = (
        "import sys\nfrom statefun import *\n"
        "print([name for name in ('pyspark', 'pyarrow', 'fastavro', 'msgspec', 'pydantic') if name in sys.modules])"
    )

    assert printed(code) == "[]\n"


def test_what_programs_do_with_the_objects() -> None:
    """As the published package has it."""
    functions = StatefulFunctions()
    assert functions, "also without functions"

    @functions.bind("test.fns/f")
    def f(ctx: statefun.Context, message: statefun.Message) -> None:
        pass

    assert functions.for_typename("test.fns/f").fun is f
    assert functions.for_typename("test.fns/f").storage_spec.names == frozenset()
    assert functions.for_typename("test.fns/f").storage_spec.specs == []
    assert SdkAddress("test", "f", "Ada", "test/f") == SdkAddress("test", "f", "Ada")
    with pytest.raises(ValueError, match="has the typename 'test/f', not 'test/g'"):
        SdkAddress("test", "f", "Ada", "test/g")
    assert isinstance(statefun.IntType.serializer(), TypeSerializer)
    assert TypedValue("a/b", b"").has_value

    class Reversed(TypeSerializer[bytes]):
        def serialize(self, value: bytes) -> bytes:
            return value[::-1]

        def deserialize(self, value: bytes) -> bytes:
            return value[::-1]

    assert Reversed().deserialize(Reversed().serialize(b"ab")) == b"ab"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert (
            statefun.make_json_type("test.types/plain_json").serializer().serialize({"é": [1, 2]})
            == '{"é": [1, 2]}'.encode()
        )


@pytest.mark.filterwarnings("ignore:statefun.* is a module of apache-flink-statefun")
def test_tests_of_programs_make_values_of_the_wire() -> None:
    """As those of the published package do: a value there and back, or none."""
    utils = importlib.import_module("statefun.utils")
    read = utils.from_typed_value

    ada, none = (utils.to_typed_value(statefun.StringType, each) for each in ("Ada", None))

    assert (ada.typename, ada.has_value) == (statefun.StringType.typename, True)
    assert read(statefun.StringType, ada) == "Ada"
    assert not none.has_value
    assert read(statefun.StringType, none) is None
    assert read(statefun.StringType, None) is None
    assert statefun.Message("test/f", "1", ada).as_string() == "Ada"
    with pytest.raises(statefun.ValueDecodeError):
        read(statefun.IntType, ada)


@pytest.mark.filterwarnings("ignore:statefun.* is a module of apache-flink-statefun")
def test_tests_of_programs_make_storage() -> None:
    """Of the values that the runtime has sent; what it has not sent is named, in order."""
    module, utils = (importlib.import_module(f"statefun.{name}") for name in ("storage", "utils"))
    specs = [
        statefun.ValueSpec("b", statefun.IntType),
        statefun.ValueSpec("a", statefun.StringType),
        statefun.ValueSpec("c", statefun.IntType),
    ]
    spec = module.make_address_storage_spec(specs)
    sent = {"b": 7, "a": None}
    values = [
        ToFunction.PersistedValue(
            state_name=name, state_value=utils.to_typed_value(statefun.IntType, value)
        )
        for name, value in sent.items()
    ]

    assert spec.specs == specs
    assert module.resolve(spec, "test/f", values[:1]).missing_specs == specs[1:]
    storage = module.resolve(module.make_address_storage_spec(specs[:2]), "test/f", values).storage
    assert storage is not None
    assert (storage.b, storage.a) == (7, None)
    with pytest.raises(AttributeError):
        storage.c  # noqa: B018 - reading it is the test
