# SPDX-License-Identifier: Apache-2.0
"""Transforms that replace the topic name in records; no topic of a cluster is renamed.

They do what ``RegexRouter`` and ``TimestampRouter`` of ``org.apache.kafka.connect.transforms`` do.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterator

import attrs

from statefun.transforms.data import TransformError
from statefun.transforms.java_dates import DateFormat
from statefun.transforms.transform import Part, Record, Schemas, Traits, Transform

_REFERENCE = re.compile(
    r"\\(?P<escaped>.)|\$\{(?P<name>[A-Za-z][A-Za-z0-9]*)\}|\$(?P<number>[0-9]+)|(?P<wrong>[\\$])",
    re.DOTALL,
)


class Router(Transform):
    """A transform that replaces the topic name in a record."""

    @property
    def traits(self) -> Traits:
        """The traits: the transform reads and changes the topic."""
        return Traits(Part.TOPIC, frozenset({Part.TOPIC}))

    def check(self, schemas: Schemas) -> None:
        """Leave all schemas unchanged, since the transform changes neither keys nor values."""


@attrs.frozen(cache_hash=True)
class RegexRouter(Router):
    """Replaces the topic name in a record if a regular expression matches the whole name."""

    regex: str
    replacement: str

    def apply(self, record: Record) -> None:
        """Replace the topic name in a record if the regular expression matches the whole name."""
        pattern = re.compile(self.regex, re.ASCII)
        if pattern.fullmatch(record.topic):
            record.topic = pattern.sub(self._replaced, record.topic, count=1)

    def _replaced(self, match: re.Match[str]) -> str:
        return "".join(replacement_parts(self.replacement, match.re.groups, match.__getitem__))


_MARKS = re.compile(
    r"(?P<escaped>\\.)|(?P<class>\[\^?\]?(?:\\.|[^\]\\])*\])|(?P<group>\(\?<(?=[A-Za-z]))",
    re.DOTALL,
)
"""Matches what to check or translate in a regular expression: escapes, character classes, named groups."""


def python_regex(java: str) -> str:
    r"""Convert a regular expression from Java's syntax to Python's.

    >>> python_regex(r"(?<name>[(?<]+)\(?<?")
    '(?P<name>[(?<]+)\\(?<?'

    Raises:
        ValueError: if ``java`` is not a regular expression, or means something else in Python. The
            error text has no subject: error messages have the quoted expression before the text.
    """
    translated = _MARKS.sub(_python_mark, java)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # about syntax with another meaning in other languages
            re.compile(translated, re.ASCII)
    except (re.error, ValueError) as error:
        raise ValueError(f"is not a regular expression: {error}") from None
    except Warning as warning:
        raise ValueError(
            f"is a regular expression with another meaning in Python than in Java: {warning}"
        ) from None
    return translated


def _python_mark(match: re.Match[str]) -> str:
    bare = re.sub(r"\\.", "", (match["class"] or "")[1:], flags=re.DOTALL)
    if "[" in bare or "&&" in bare:
        raise ValueError(
            f"has an unescaped [ or && in the character class that begins with {match['class']}; nested "
            "character classes and intersections are not supported: list the characters, or write \\[ "
            "for a bracket"
        )
    return "(?P<" if match["group"] else match[0]


def replacement_parts(
    replacement: str, groups: int, group_of: Callable[[int | str], str | None]
) -> Iterator[str]:
    """Yield, piece by piece, the text that replaces a match, by the rules of Java's class ``Matcher``.

    In the replacement, ``$1`` and ``${name}`` stand for groups of the match, and a character after a
    backslash stands for itself.

    Args:
        replacement: the replacement.
        groups: the number of groups of the regular expression.
        group_of: returns the text that a group has matched; raises IndexError if the expression
            has no such group.

    Raises:
        TransformError: if the replacement names a group that the expression does not have.
    """
    place = 0
    for reference in _REFERENCE.finditer(replacement):
        yield replacement[place : reference.start()]
        place = reference.end()
        if reference["wrong"]:
            raise TransformError(
                f"cannot use the replacement: {reference['wrong']} at character {reference.start() + 1} "
                "must begin a group such as $1; write a backslash before the character to mean it literally"
            )
        if reference["escaped"]:
            yield reference["escaped"]
            continue
        group: int | str = reference["name"] or ""
        if reference["number"]:
            # As in Java, the number has as many digits as there are groups for.
            digits = reference["number"]
            while len(digits) > 1 and int(digits) > groups:
                digits = digits[:-1]
            group = int(digits)
            place -= len(reference["number"]) - len(digits)
        try:
            yield group_of(group) or ""
        except IndexError:
            raise TransformError(
                f"cannot use the replacement: the regular expression has no group {group}"
            ) from None
    yield replacement[place:]


def check_replacement(regex: str, replacement: str) -> None:
    """Check that a replacement names only groups that a regular expression has.

    Raises:
        TransformError: if the replacement names other groups.
    """
    pattern = re.compile(regex, re.ASCII)

    def group(name: int | str) -> str:
        if name not in pattern.groupindex and name not in range(pattern.groups + 1):
            raise IndexError
        return ""

    list(replacement_parts(replacement, pattern.groups, group))


@attrs.frozen(cache_hash=True)
class TimestampRouter(Router):
    """Replaces the topic name in a record by a name that can contain the old name and the record's time."""

    topic_format: str
    """The new name, in which ``${topic}`` stands for the old name and ``${timestamp}`` for the time."""
    timestamp_format: DateFormat

    @property
    def traits(self) -> Traits:
        """The traits: the transform reads and changes the topic, and reads the record's time."""
        return super().traits._replace(reads_time=True)

    def apply(self, record: Record) -> None:
        """Replace the topic name in a record by the name that the formats give."""
        if record.timestamp is None:
            raise TransformError(
                "TimestampRouter needs the timestamp of the record, but the record has no timestamp"
            )
        named = self.topic_format.replace("${topic}", record.topic)
        try:
            time = self.timestamp_format.format(record.timestamp)
        except ValueError as error:
            raise TransformError(f"the record's timestamp cannot be written: {error}") from None
        record.topic = named.replace("${timestamp}", time)
