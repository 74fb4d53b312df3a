# SPDX-License-Identifier: Apache-2.0
"""Random trees of commands, and what has to be published when functions carry them out.

The commands are described in ``languages/servers.py``. However messages of different senders are
ordered, and whenever they come, the outcome of a tree is certain: each command is carried out once,
except those in delayed messages that are cancelled in time.
"""

from __future__ import annotations

import itertools
import json
import random
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import attrs

Command = dict[str, Any]

LATE = 3_600_000
"""Milliseconds after which a message is due that has to be cancelled before that."""
CANCELLED = "cancelled"
"""The names of commands that must not be carried out begin with it."""

_SOON = 300
_TREE = 50
_SHOWN = 10


@attrs.frozen
class Tree:
    """A message from outside, with the commands that it causes in turn."""

    function: str
    id: str
    commands: Sequence[Command]

    @property
    def value(self) -> bytes:
        """The message's value."""
        return json.dumps(self.commands).encode()


def trees(seed: int, commands: int, functions: Sequence[str], ids: Sequence[str]) -> list[Tree]:
    """Return trees with about so many commands for all functions and ids; same seed, same trees."""
    grower = _Grower(random.Random(seed), functions, ids)
    grown: list[Tree] = []
    while commands > 0:
        function, id_ = grower.address()
        grown.append(Tree(function, id_, grower.grow(id_, min(commands, _TREE))))
        commands -= sum(1 for _ in _all(grown[-1].commands))
    return grown


def _all(commands: Iterable[Command]) -> Iterator[Command]:
    for command in commands:
        yield command
        yield from _all(command.get("commands", ()))


class _Grower:
    """Makes the commands of messages."""

    def __init__(self, chosen: random.Random, functions: Sequence[str], ids: Sequence[str]) -> None:
        self._random = chosen
        self._functions = functions
        self._ids = ids
        self._numbers = itertools.count()

    def address(self) -> tuple[str, str]:
        """Choose an address."""
        return self._random.choice(self._functions), self._random.choice(self._ids)

    def grow(self, id_: str, size: int) -> list[Command]:
        """Return about so many commands for a message to an id."""
        kinds: list[Callable[[str, int], list[Command]]]
        kinds = [self._add, self._send, self._note, self._after, self._token]
        grown: list[Command] = []
        while size > 0:
            (kind,) = self._random.choices(kinds, (8, 4, 1, 2, 2))
            new = kind(id_, self._random.randint(0, size // 2))
            grown += new
            size -= sum(1 for _ in _all(new))
        return grown

    def _add(self, _id: str, _size: int, name: str = "add") -> list[Command]:
        by = self._random.randint(-1000, 1000)
        return [{"do": "add", "by": by, "name": self._new(name)}]

    def _note(self, _id: str, _size: int) -> list[Command]:
        recall = {"do": "recall", "name": self._new("recall")}
        if self._random.random() < 0.5:
            return [{"do": "forget"}, recall]
        return [{"do": "remember", "text": self._new("text")}, recall]

    def _send(self, _id: str, size: int) -> list[Command]:
        function, target = self.address()
        return [_send(function, target, self.grow(target, size))]

    def _after(self, _id: str, size: int) -> list[Command]:
        function, target = self.address()
        return [self._soon(function, target, self.grow(target, size))]

    def _token(self, id_: str, size: int) -> list[Command]:
        """Use a token, in one of the ways whose outcome is certain."""
        ways = [self._cancelled_at_once, self._cancelled_by_a_message, self._cancelled_in_vain]
        if len(self._ids) > 1:
            ways.append(self._cancelled_by_another_id)
        return self._random.choice(ways)(id_, size)

    def _cancelled_at_once(self, id_: str, size: int) -> list[Command]:
        """The same message sends and cancels; what it sends then has the token for itself."""
        token = self._new("token")
        lost = self._lost(token, self._random.choice([0, self._random.randint(0, _SOON), LATE]))
        between = self.grow(id_, size // 2)
        found = self._found(token, size // 2) if self._random.random() < 0.5 else []
        return [lost, *between, _cancel(token), *found]

    def _cancelled_by_a_message(self, id_: str, size: int) -> list[Command]:
        """Long before it is due, under any function of the id; that may use the token again."""
        token = self._new("token")
        again = [_cancel(token), *self._found(token, size)]
        function = self._random.choice(self._functions)
        how = self._random.choice([_send, self._soon])
        return [self._lost(token, LATE), how(function, id_, again)]

    def _cancelled_in_vain(self, id_: str, size: int) -> list[Command]:
        """What cancels comes from the message itself, which then is no longer pending."""
        token = self._new("token")
        function = self._random.choice(self._functions)
        (found,) = self._found(token, size)
        found["commands"].append(_send(function, id_, [_cancel(token)]))
        return [found]

    def _cancelled_by_another_id(self, id_: str, size: int) -> list[Command]:
        """Which cannot do that: tokens belong to the id that has sent the message."""
        token = self._new("token")
        other = self._random.choice([each for each in self._ids if each != id_])
        function = self._random.choice(self._functions)
        return [*self._found(token, size), _send(function, other, [_cancel(token)])]

    def _found(self, token: str, size: int) -> list[Command]:
        function, target = self.address()
        return [{**self._soon(function, target, self.grow(target, size)), "token": token}]

    def _lost(self, token: str, milliseconds: int) -> Command:
        function, target = self.address()
        commands = self._add(target, 0, CANCELLED)
        return _after(function, target, commands, milliseconds) | {"token": token}

    def _soon(self, function: str, id_: str, commands: list[Command]) -> Command:
        return _after(function, id_, commands, self._random.randint(0, _SOON))

    def _new(self, kind: str) -> str:
        return f"{kind}-{next(self._numbers)}"


def _send(function: str, id_: str, commands: list[Command]) -> Command:
    return {"do": "send", "to": function, "id": id_, "commands": commands}


def _after(function: str, id_: str, commands: list[Command], milliseconds: int) -> Command:
    return _send(function, id_, commands) | {"do": "after", "milliseconds": milliseconds}


def _cancel(token: str) -> Command:
    return {"do": "cancel", "token": token}


@attrs.frozen
class Expected:
    """What trees have to come to."""

    added: Mapping[str, tuple[str, int]]
    """Each name that is published with a total: its address, and by how much that grows."""
    noted: Mapping[str, tuple[str, str | None]]
    """Each name that is published with a note: its address, and the note."""

    @classmethod
    def of(cls, forest: Iterable[Tree]) -> Expected:
        """Carry out trees, one command after the other."""
        added: dict[str, tuple[str, int]] = {}
        noted: dict[str, tuple[str, str | None]] = {}
        messages = [(f"{tree.function}/{tree.id}", tree.commands) for tree in forest]
        while messages:
            address, commands = messages.pop()
            note = None
            for number, command in enumerate(commands):
                match command:
                    case {"do": "add", "name": name, "by": by}:
                        assert name not in added
                        added[name] = (address, by)
                    case {"do": "remember" | "forget"}:
                        note = command.get("text")
                    case {"do": "recall", "name": name}:
                        assert name not in noted
                        noted[name] = (address, note)
                    case {"do": "send" | "after", "to": function, "id": id_, "commands": nested}:
                        if not _is_cancelled(command, commands[number + 1 :]):
                            messages.append((f"{function}/{id_}", nested))
        return cls(added, noted)

    @property
    def totals(self) -> dict[str, int]:
        """The last total of each address that has one."""
        totals: Counter[str] = Counter()
        for address, by in self.added.values():
            totals[address] += by
        return dict(totals)

    def __len__(self) -> int:
        """How many records are to be published."""
        return len(self.added) + len(self.noted)

    def check(self, published: Iterable[str | bytes]) -> None:
        """Compare with what was published: the values of records, in order for each address.

        Raises:
            AssertionError: if it is anything else, with what differs.
        """
        records = [json.loads(value) for value in published]
        found = Counter(record["name"] for record in records)
        due = {name: address for name, (address, _) in (*self.added.items(), *self.noted.items())}
        problems = [
            *_told("missing", [f"{name} of {due[name]}" for name in due if name not in found]),
            *_told(
                "doubled", [f"{name}, {count} times" for name, count in found.items() if count > 1]
            ),
            *_told("unexpected", [str(record) for record in records if record["name"] not in due]),
            *_told("wrong", self._wrong(records)),
        ]
        assert not problems, "\n".join([f"{len(records)} of {len(due)} records", *problems])

    def _wrong(self, records: Iterable[dict[str, Any]]) -> Iterator[str]:
        """Return records that do not say what they should, and addresses without their total."""
        totals: defaultdict[str, int] = defaultdict(int)
        for record in records:
            name = record["name"]
            if name in self.added:
                address, by = self.added[name]
                right = {"name": name, "address": address, "total": totals[address] + by}
                # one mistake makes one text, and not one for each record that comes after it
                totals[address] = record.get("total", right["total"])
            elif name in self.noted:
                address, note = self.noted[name]
                right = {"name": name, "address": address, "note": note}
            else:  # which is told already; what comes after it goes on from there
                if "total" in record:
                    totals[record["address"]] = record["total"]
                continue
            if record != right:
                yield f"{record} instead of {right}"
        for address, total in self.totals.items():
            if totals[address] != total:
                yield f"{address} ends with {totals[address]} instead of {total}"


def _is_cancelled(command: Command, later: Sequence[Command]) -> bool:
    """Return whether a message is not to be delivered, given the commands after it."""
    return command["do"] == "after" and (
        command["milliseconds"] >= LATE or _cancel(command.get("token", "")) in later
    )


def _told(what: str, problems: Iterable[str]) -> list[str]:
    """Return a line with the first of several problems."""
    found = list(problems)
    more = f"; and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
    return [f"{len(found)} {what}: {'; '.join(found[:_SHOWN])}{more}"] if found else []
