# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import copy
import inspect
import pickle
import re

import pytest

import statefun
from statefun import DefinitionError, ModuleError, StatefunError, ValueDecodeError
from statefun.sdk import errors
from statefun.sdk.errors import ConfigurationError, Problem, by_code, restored

CLASSES = [
    class_
    for _, class_ in inspect.getmembers(errors, inspect.isclass)
    if issubclass(class_, StatefunError)
]

CODES = {
    "SF000": ("StatefunError", "Exception"),
    "SF100": ("ConfigurationError", "StatefunError"),
    "SF101": ("ModuleError", "ConfigurationError"),
    "SF102": ("BindingError", "ConfigurationError"),
    "SF200": ("DefinitionError", "StatefunError"),
    "SF300": ("InvocationError", "StatefunError"),
    "SF301": ("FunctionError", "InvocationError"),
    "SF302": ("ValueDecodeError", "InvocationError"),
    "SF303": ("UnknownEgressError", "InvocationError"),
    "SF304": ("UnknownFunctionError", "InvocationError"),
    "SF305": ("StateDecodeError", "InvocationError"),
    "SF306": ("RequestError", "InvocationError"),
    "SF307": ("UnexpectedValueError", "InvocationError"),
    "SF308": ("EndpointError", "InvocationError"),
    "SF309": ("LateMessageError", "InvocationError"),
    "SF400": ("RecordError", "StatefunError"),
    "SF500": ("KafkaError", "StatefunError"),
    "SF501": ("TopicError", "KafkaError"),
    "SF510": ("ConnectorError", "StatefunError"),
    "SF600": ("CheckpointError", "StatefunError"),
    "SF700": ("PlatformError", "StatefunError"),
    "SF900": ("EngineError", "StatefunError"),
}

FIRST = Problem("module.yaml", 3, 5, "spec.topics[0]", "a topic needs targets")
SECOND = Problem("module.yaml", 9, 1, "", "the document is empty")


def _make(class_: type[StatefunError]) -> StatefunError:
    return ModuleError((FIRST, SECOND)) if class_ is ModuleError else class_("what and why")


def test_codes_and_bases_are_stable() -> None:
    """Programs match on the codes; each belongs to one class."""
    actual = {class_.code: (class_.__name__, class_.__bases__[0].__name__) for class_ in CLASSES}

    assert actual == CODES
    assert len(CLASSES) == len(CODES)


def test_the_documented_tree_is_the_real_one() -> None:
    """The tree at the top of the module has every class, its code and its parent."""
    documented: dict[str, tuple[str, str]] = {}
    parents: dict[int, str] = {}
    for line in (errors.__doc__ or "").splitlines():
        found = re.search(r"(\w+Error)(?: +(SF\d+)|$)", line)
        if found:
            parents[found.start()] = found[1]
            above = max((at for at in parents if at < found.start()), default=None)
            base = "Exception" if above is None else parents[above]
            documented[found[2] or "SF000"] = (found[1], base)

    assert documented == CODES


@pytest.mark.parametrize("class_", CLASSES)
def test_every_error_is_public_and_documented(class_: type[StatefunError]) -> None:
    """Users can catch each class by a name of the package."""
    assert getattr(statefun, class_.__name__) is class_
    assert class_.__doc__


@pytest.mark.parametrize("class_", CLASSES)
def test_codes_name_their_class(class_: type[StatefunError]) -> None:
    """An error's class can be found again by the code that was sent or logged."""
    assert by_code(class_.code) is class_


@pytest.mark.parametrize("class_", CLASSES)
def test_errors_are_restored_by_code_and_message(class_: type[StatefunError]) -> None:
    """Except that a ModuleError, whose problems stay in the other process, becomes its base."""
    error = _make(class_)

    copy = restored(error.code, error.message)

    assert (type(copy), copy.message) == (
        ConfigurationError if class_ is ModuleError else class_,
        error.message,
    )


@pytest.mark.parametrize("code", ["", "SF999", "sf100"])
def test_unknown_codes_name_the_base(code: str) -> None:
    """A code of another version is still an error of ours."""
    assert by_code(code) is StatefunError


@pytest.mark.parametrize("class_", CLASSES)
def test_errors_print_their_code(class_: type[StatefunError]) -> None:
    """The text starts with the code in brackets; the message is without."""
    error = _make(class_)

    assert str(error) == f"[{class_.code}] {error.message}"
    assert error.details == ""


@pytest.mark.parametrize("class_", CLASSES)
def test_errors_travel_between_processes(class_: type[StatefunError]) -> None:
    """Pickling and copying keep the class, the text and the details."""
    error = _make(class_)
    error.details = "Traceback (most recent call last): ..."

    for twin in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert type(twin) is class_
        assert str(twin) == str(error)
        assert twin.details == error.details
        assert vars(twin) == vars(error)


@pytest.mark.parametrize("class_", [DefinitionError, ValueDecodeError])
def test_wrong_values_are_value_errors(class_: type[StatefunError]) -> None:
    """Code that caught a ValueError of the older package still does."""
    assert issubclass(class_, ValueError)


def test_a_problem_prints_its_place_first() -> None:
    """Editors jump to file, line and column; the key is left out at the top level."""
    assert str(FIRST) == "module.yaml:3:5: spec.topics[0]: a topic needs targets"
    assert str(SECOND) == "module.yaml:9:1: the document is empty"


def test_a_module_error_has_all_problems() -> None:
    """Every finding is a line of the text, in the order given."""
    one, both = ModuleError((FIRST,)), ModuleError((FIRST, SECOND))

    assert one.message == f"1 problem in the module files\n  {FIRST}"
    assert both.message == f"2 problems in the module files\n  {FIRST}\n  {SECOND}"
    assert both.problems == (FIRST, SECOND)
