# SPDX-License-Identifier: Apache-2.0
"""An application on Spark whose functions obey the programs in their messages, run step by step."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import attrs
from harness import KafkaHarness, run
from programs import START, Program, obedient

from statefun.dev.spark_application import FileClock
from statefun.runtime.checkpoint.folder import Folder
from statefun.runtime.reporting.summary import Summary
from statefun.runtime.stored.committed_state import with_state


@attrs.define
class System:
    """An application that obeys, run step by step."""

    kafka: KafkaHarness
    inputs: str
    out: str
    checkpoint: Path
    clock: FileClock
    seen: int = 0
    summary: Summary = attrs.Factory(Summary)

    def step(
        self, roots: list[tuple[str, Program]], now: float = START, **options: Any
    ) -> list[list[Any]]:
        """Send programs, run until all is done, and return the new records, in order."""
        self.clock.set(now)
        self.kafka.send(self.inputs, [(id_, json.dumps(program)) for id_, program in roots])
        module = self.kafka.module({self.inputs: ["t.fns/a"]})
        self.summary = run(module, obedient(self.out), self.checkpoint, clock=self.clock, **options)
        records = [json.loads(record.value) for record in self.kafka.receive(self.out)]
        new, self.seen = records[self.seen :], len(records)
        return new

    def texts(self, roots: list[tuple[str, Program]], now: float = START) -> list[Any]:
        """Like ``step``, but return the texts of the records alone."""
        return [text for _, _, text, _, _ in self.step(roots, now)]

    def addresses(self) -> set[str]:
        """Return the addresses that have a row in the state store."""
        rows = with_state(Folder.at(self.checkpoint), None, list)
        return {"/".join(key.decode().split("\0")[::-1]) for key, _ in rows}

    def has_timers(self) -> bool:
        """Return whether a delayed message waits."""
        return self.summary.next_timer is not None
