# SPDX-License-Identifier: Apache-2.0
"""Dead letters as records: whatever they are about, the topic for them takes them.

A dead letter is the message or record as it was, and beside its own headers there are some that
begin with ``statefun-`` and say what, where, when and why. Texts among those may be long, such as
ids and the messages of exceptions: they are cut. If a letter is still larger than its egress
takes, parts of the record are left out, and the letter says which ones.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from typing import Any, NamedTuple

import attrs

from statefun.module.model import KafkaEgress
from statefun.runtime.rows.effects import EgressRecord, headers_size
from statefun.runtime.rows.envelope import HEADER_PREFIX

CUT = "cut"
"""The fact that names the texts that are not whole."""
LEFT_OUT = "left-out"
"""The fact that names the parts of the record that its letter does not have."""
_TEXT_BYTES = 2000
_MARK = b"..."
_RECORD_OVERHEAD = 200
_HEADER_OVERHEAD = 10

_PARTS: dict[str, Any] = {"value": None, "headers": (), "key": None}
"""What is left out of a letter that is too large, one after the other, and what is in its place."""

Headers = Sequence[tuple[str, bytes | None]]


class Original(NamedTuple):
    """What a letter is about."""

    key: bytes | None
    value: bytes | None
    headers: Headers


@attrs.frozen
class DeadLetterTopic:
    """Where dead letters go."""

    egress: str
    topic: str
    max_record_size: int
    """How many bytes a record of its egress may have."""

    @classmethod
    def of(cls, egress: KafkaEgress | None) -> DeadLetterTopic | None:
        """Take what the egress that dead letters go to says, if there is one."""
        if egress is None or egress.dead_letter_topic is None:
            return None
        return cls(str(egress.id), egress.dead_letter_topic, egress.max_record_size)

    def letter(
        self,
        original: Original,
        facts: Iterable[tuple[str, str]],
        whole: Container[str] = (),
    ) -> tuple[EgressRecord, list[str]]:
        """Return a letter that is not too large, and the names of what was left out for that.

        Args:
            original: what it is about; headers of an earlier failure are dropped.
            facts: what is known of the failure, by the names of headers without their prefix.
            whole: the facts that are not cut, however long they are.
        """
        texts, cut = [], []
        for name, text in facts:
            content = _encoded(text)
            if len(content) > _TEXT_BYTES and name not in whole:
                content = content[:_TEXT_BYTES].decode(errors="ignore").encode() + _MARK
                cut.append(name)
            texts.append((name, content))
        texts += [(CUT, _encoded(",".join(cut)))] if cut else []
        own = [each for each in original.headers if not each[0].startswith(HEADER_PREFIX)]
        kept, left_out = original._replace(headers=own), list[str]()
        while True:
            about = [(LEFT_OUT, _encoded(",".join(left_out)))] if left_out else []
            headers = [(HEADER_PREFIX + name, content) for name, content in [*texts, *about]]
            letter = EgressRecord(self.topic, kept.key, kept.value, [*kept.headers, *headers])
            largest = next((name for name in _PARTS if getattr(kept, name)), None)
            if largest is None or _size(letter) <= self.max_record_size:
                return letter, left_out
            kept = kept._replace(**{largest: _PARTS[largest]})
            left_out.append(largest)


def _size(record: EgressRecord) -> int:
    """Return what a record has on the wire, and a little more."""
    headers = record.headers or ()
    size = len(record.key or b"") + len(record.value or b"") + headers_size(headers)
    return size + _RECORD_OVERHEAD + _HEADER_OVERHEAD * len(headers)


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "backslashreplace")
