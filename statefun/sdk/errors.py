# SPDX-License-Identifier: Apache-2.0
"""All errors that statefun raises on purpose.

Every error has a stable ``code`` that messages start with and that programs may match on::

    StatefunError
     ├─ ConfigurationError       SF100  settings and files that the user wrote
     │   ├─ ModuleError          SF101  module.yaml: every problem with file, line, column and key
     │   └─ BindingError         SF102  module.yaml and the registered functions do not fit
     ├─ DefinitionError          SF200  a function, type, value spec or message is ill-formed
     ├─ InvocationError          SF300  something went wrong inside one invocation
     │   ├─ FunctionError        SF301  the user's function raised
     │   ├─ ValueDecodeError     SF302  the value of a message does not decode as its type
     │   ├─ UnknownEgressError   SF303  a message to an egress that no module declares
     │   ├─ UnknownFunctionError SF304  a message to a function that nobody registered
     │   ├─ StateDecodeError     SF305  a stored value does not decode as its type
     │   ├─ RequestError         SF306  a request of a remote runtime that cannot be read
     │   ├─ UnexpectedValueError SF307  a value of a type that no handler of the function takes
     │   ├─ EndpointError        SF308  a remote function has failed, or has not answered
     │   └─ LateMessageError     SF309  a message for a window that is closed
     ├─ RecordError              SF400  an ingress record that no function can receive
     ├─ KafkaError               SF500  a broker that cannot be reached or refuses
     │   └─ TopicError           SF501  a topic or partition that does not exist
     ├─ ConnectorError           SF510  a stream or folder that cannot be read or written
     ├─ CheckpointError          SF600  a checkpoint that cannot be used as asked
     ├─ PlatformError            SF700  Java, jars or processes that are missing or fail
     └─ EngineError              SF900  Spark itself failed

Some classes are also subclasses of the exceptions that Stateful Functions 3.x raises for the same
reasons, so that programs which catch those exceptions still work.
"""

from __future__ import annotations

from json import JSONDecodeError
from typing import ClassVar, TypeVar

import attrs
from google.protobuf.message import DecodeError


class StatefunError(Exception):
    """Base of all errors; ``str(error)`` starts with the code in brackets.

    >>> str(DefinitionError("typename 'greeter' has no namespace"))
    "[SF200] typename 'greeter' has no namespace"
    """

    code: ClassVar[str] = "SF000"

    def __init__(self, message: str) -> None:
        Exception.__init__(self, message)  # further bases may have constructors with more arguments
        self.message = message
        self.details = ""
        """Further text for debugging, such as the traceback of a user's function; may be empty."""
        self.way_out = ""
        """How a user can continue an application that the error has stopped; is shown after the message."""

    def __str__(self) -> str:
        return f"[{self.code}] {self.message}"

    __reduce__ = Exception.__reduce__


class ConfigurationError(StatefunError):
    """A setting or a file that the user has written cannot be used."""

    code = "SF100"


@attrs.frozen
class Problem:
    """One problem in a module file; ``line`` and ``column`` count from 1."""

    file: str
    line: int
    column: int
    key: str
    """Dotted path of the offending key, such as ``spec.topics[0].targets``; empty at top level."""
    text: str
    """The mistake, and how to correct it."""

    def __str__(self) -> str:
        where = f"{self.file}:{self.line}:{self.column}"
        return f"{where}: {self.key}: {self.text}" if self.key else f"{where}: {self.text}"


class ModuleError(ConfigurationError):
    """Module files cannot be used; ``problems`` lists all problems, ordered by file and line."""

    code = "SF101"

    def __init__(self, problems: tuple[Problem, ...]) -> None:
        self.problems = problems
        count = "1 problem" if len(problems) == 1 else f"{len(problems)} problems"
        super().__init__("\n  ".join([f"{count} in the module files", *map(str, problems)]))


class BindingError(ConfigurationError):
    """Module files do not fit the registered functions: for example, a target is not registered."""

    code = "SF102"


class DefinitionError(StatefunError, ValueError, TypeError):
    """A function, type, value spec, address or message is ill-formed."""

    code = "SF200"


class InvocationError(StatefunError):
    """Something went wrong inside one invocation of a function."""

    code = "SF300"


class FunctionError(InvocationError):
    """A function has failed, or a service that is needed to decode a value has not answered.

    ``details`` has the traceback if the function has raised an exception that stops the
    application; otherwise ``details`` is empty.
    """

    code = "SF301"


class _UndecodableError(JSONDecodeError, DecodeError, TypeError):
    """The base class of errors about bytes that cannot be decoded.

    It is a subclass of the exceptions that Stateful Functions 3.x raises for such bytes, so that
    programs which catch those exceptions still work.
    """

    message: str

    doc = ""
    pos = 0
    lineno = colno = 1

    @property
    def msg(self) -> str:  # type: ignore[override] # JSONDecodeError has an attribute
        """The error's message, under the name that the base class JSONDecodeError gives it."""
        return self.message


class ValueDecodeError(InvocationError, _UndecodableError):
    """The value of a message cannot be decoded as the type with which it is read."""

    code = "SF302"


class UnknownEgressError(InvocationError):
    """A message was sent to an egress that no module file declares."""

    code = "SF303"


class UnknownFunctionError(InvocationError, KeyError):
    """A message was sent to a function type that nobody registered."""

    code = "SF304"


class StateDecodeError(InvocationError, _UndecodableError):
    """A stored value cannot be decoded as the type with which it is declared."""

    code = "SF305"


class RequestError(InvocationError, DecodeError):
    """A remote runtime has sent bytes that are not a request of the request-reply protocol."""

    code = "SF306"


class RecordError(StatefunError):
    """An ingress record that no function can receive, such as one without a key."""

    code = "SF400"


class UnexpectedValueError(InvocationError, RecordError):
    """The value of a message is of a type that no handler of the function takes."""

    code = "SF307"


class LateMessageError(InvocationError):
    """A message has come after its window was closed."""

    code = "SF309"


class EndpointError(InvocationError):
    """A function behind an endpoint has failed, or has not answered."""

    code = "SF308"


class KafkaError(StatefunError):
    """A Kafka cluster cannot be reached, or refuses a request."""

    code = "SF500"


class TopicError(KafkaError):
    """A topic or partition does not exist."""

    code = "SF501"


class ConnectorError(StatefunError):
    """An ingress or egress of another kind than Kafka's cannot read or write, or has lost records."""

    code = "SF510"


class CheckpointError(StatefunError):
    """A checkpoint cannot be used in the way that a run or a command wants to use it."""

    code = "SF600"


class PlatformError(StatefunError):
    """Java, jars or a process that statefun needs is missing or failed."""

    code = "SF700"


class EngineError(StatefunError):
    """Spark itself failed."""

    code = "SF900"


E = TypeVar("E", bound=StatefunError)


def caused(error: E, cause: BaseException | None) -> E:
    """Give an error its cause, and return it: in compiled code, ``raise ... from`` does not set the cause.

    Without the cause, a traceback would not show the exception that has led to the error.
    """
    error.__cause__ = cause
    return error


def by_code(code: str) -> type[StatefunError]:
    """Return the class of the errors with the code ``code``.

    >>> by_code("SF301")
    <class 'statefun.sdk.errors.FunctionError'>
    """
    classes = [StatefunError]
    for class_ in classes:
        if class_.code == code:
            return class_
        classes.extend(class_.__subclasses__())
    return StatefunError


def restored(code: str, message: str) -> StatefunError:
    """Rebuild an error that another process has reported as a code and a message.

    >>> restored("SF301", "greet failed")
    FunctionError('greet failed')
    """
    class_ = by_code(code)
    # A ModuleError is made of problems, which its message does not hold.
    return ConfigurationError(message) if class_ is ModuleError else class_(message)
