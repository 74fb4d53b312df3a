# SPDX-License-Identifier: Apache-2.0
"""The facts about a running application that the admin API shows, as JSON; nothing here touches a micro-batch."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from datetime import datetime, timedelta, timezone
from typing import Any

from statefun.module.connectors import ConnectorIngress
from statefun.module.model import KafkaIngress
from statefun.runtime.admin.module_texts import module_files
from statefun.runtime.checkpoint.pauses import Parts, Paused
from statefun.runtime.control import Control
from statefun.runtime.definition import Definition
from statefun.runtime.ingress.declared import all_sources
from statefun.runtime.release.committed_progress import RUNNING, CommittedProgress, running_state
from statefun.runtime.reporting.figures import Figures, FunctionFigures
from statefun.runtime.stored.address_report import address_report
from statefun.runtime.stored.committed_state import with_state
from statefun.runtime.stored.known_values import KnownValues
from statefun.runtime.stored.pending_timers import pending_timers
from statefun.runtime.stored.state_json import report_json
from statefun.sdk.address import Address
from statefun.sdk.errors import CheckpointError
from statefun.sdk.times import from_epoch_millis

Json = dict[str, Any]
_MOST_TIMERS = 200


class AdminViews:
    """Shows a running application.

    Args:
        definition: the application.
        control: has the paused parts.
        figures: the counts of the application.
    """

    def __init__(self, definition: Definition, control: Control, figures: Figures) -> None:
        self.definition = definition
        self._control = control
        self.figures = figures
        self._sources = {str(each.id): each for each in all_sources(definition.module)}
        self._sinks = {str(each.id): each for each in definition.module.all_egresses}
        self._reading = threading.Lock()

    @property
    def parts(self) -> Parts:
        """The ingresses and egresses of the application."""
        return Parts(frozenset(self._sources), frozenset(self._sinks))

    @property
    def paused(self) -> Paused:
        """The parts that are paused at present."""
        return self._control.pauses.paused

    @property
    def restarts(self) -> int:
        """How often another run has begun, after an order or the loss of a worker."""
        return self._control.restarts

    def function_names(self) -> list[str]:
        """Return the typenames of all functions, also of those behind endpoints that have been called."""
        declared = {str(each.typename) for each in self.definition.functions}
        with self.figures.lock:
            return sorted(
                {each for each in declared if not each.endswith("/*")} | {*self._called()}
            )

    def progress(self) -> CommittedProgress:
        """Return how far the application has committed and published, as its checkpoint shows it."""
        return CommittedProgress.of(
            self.definition.settings.checkpoint,
            self.parts,
            self.paused,
            is_running=True,
        )

    def trouble(self, patience: timedelta) -> str:
        """Return why the application makes no progress; empty if it does.

        Args:
            patience: how long a micro-batch may take.
        """
        try:
            self.definition.settings.checkpoint.check_owner()
            progress = self.progress()
        except (CheckpointError, OSError) as error:
            return str(error)
        if progress.is_stuck(patience):
            return f"micro-batch {progress.batch + 1} is not committed yet, {progress.planned_for} after it was planned"
        return ""

    def status(self) -> Json:
        """Return how far the application has read and published, its rates, and the numbers of waiting records and messages."""
        figures, summary, progress = self.figures, self.figures.summary, self.progress()
        read, published = figures.rates()
        now = datetime.now(timezone.utc).timestamp()
        content = progress.as_json()
        if not figures.is_up:
            content["state"] = "STARTING"
        elif self._control.is_draining:
            content["state"] = "DRAINING"
        return {
            **content,
            "uptime_seconds": round(now - figures.began, 3),
            "restarts": self._control.restarts,
            "seconds_since_commit": round(now - figures.committed_at, 3),
            "records_read_per_second": round(read, 3),
            "records_published_per_second": round(published, 3),
            "lag": sum(each.lag for each in figures.partitions),
            "backlog": summary.backlog,
            "calls_under_way": summary.calls_under_way,
            "endpoints_down": summary.endpoints_down,
            "watermark": None if summary.watermark is None else summary.watermark.isoformat(),
            "counts": {
                "batches": summary.batches,
                "invocations": summary.invocations,
                "records_published": summary.egress_records,
                "retries": summary.retries,
                "skipped": summary.skipped,
                "dead_letters": summary.dead_letters,
                "refused": summary.refused,
            },
        }

    def functions(self) -> list[Json]:
        """Return all functions, with their counts."""
        names = self.function_names()
        with self.figures.lock:
            return [self._function(name) for name in names]

    def function(self, name: str) -> Json:
        """Return a function, with its counts."""
        with self.figures.lock:
            return self._function(name)

    def ingresses(self) -> list[Json]:
        """Return all ingresses, and how far they are read."""
        return [self.ingress(each) for each in sorted(self._sources)]

    def ingress(self, name: str) -> Json:
        """Return an ingress, and how far it is read."""
        source = self._sources[name]
        partitions = [each for each in self.figures.partitions if each.ingress == name]
        waits_for = self.figures.waits.get(name, ())
        state = running_state(self.paused, "ingress", name)
        return {
            "name": name,
            "type": "source",
            "kind": _kind(source),
            "state": "WAITING" if waits_for and state == RUNNING else state,
            "waits_for": list(waits_for),
            "records": sum(each.read - each.first for each in partitions)
            + self.figures.connectors.get(name, 0),
            "lag": sum(each.lag for each in partitions),
            "topics": [route.topic for route in source.topics],
            "targets": sorted({str(each) for route in source.topics for each in route.targets}),
            "partitions": [
                {
                    "topic": each.topic,
                    "partition": each.partition,
                    "offset": each.read,
                    "lag": each.lag,
                }
                for each in partitions
            ],
        }

    def egresses(self) -> list[Json]:
        """Return all egresses, with the counts of published records."""
        return [self.egress(each) for each in sorted(self._sinks)]

    def egress(self, name: str) -> Json:
        """Return an egress, with the count of published records."""
        found = self.figures.egresses.get(name)
        return {
            "name": name,
            "type": "sink",
            "kind": getattr(self._sinks[name], "kind", "io.statefun.kafka.v1/egress"),
            "state": running_state(self.paused, "egress", name),
            "records": 0 if found is None else found.records,
            "waiting_records": 0 if found is None else found.waiting_records,
            "waiting_batches": 0 if found is None else found.waiting_batches,
        }

    def batches(self) -> list[Json]:
        """Return the last micro-batches, at most one for each second, with the times of their phases."""
        with self.figures.lock:
            batches = list(self.figures.batches)
        return [
            {
                "batch": each.batch,
                "began": _iso(each.began),
                "seconds": each.seconds,
                "rows": each.rows,
                "phases": dict(each.phases),
            }
            for each in batches
        ]

    def failures(self) -> list[Json]:
        """Return failures by kind, the newest first."""
        with self.figures.lock:
            problems = list(self.figures.problems.values())
        return [
            {
                "kind": each.kind,
                "count": each.count,
                "what": each.what,
                "text": each.text,
                "last": _iso(each.last),
            }
            for each in reversed(problems)
        ]

    def timers(self) -> Json:
        """Return when timers are due."""
        pending = pending_timers(self.definition.settings.checkpoint)
        first = sorted(pending.items())[:_MOST_TIMERS]
        return {
            "buckets": sum(pending.values()),
            "due": [
                {
                    "time": from_epoch_millis(second.time).isoformat(),
                    "in_event_time": second.in_event_time,
                    "buckets": count,
                }
                for second, count in first
            ],
        }

    def module(self) -> list[Json]:
        """Return the module files without possible secrets, and the warnings of ``statefun validate`` about them."""
        return module_files(self.definition)

    def state(self, namespace: str, name: str, id_: str) -> Json | None:
        """Return the report about an address after the newest committed micro-batch; None if the checkpoint knows nothing about it.

        Raises:
            StatefunError: if the function is unknown, or the state cannot be read.
        """
        checkpoint = self.definition.settings.checkpoint
        known = KnownValues.of(checkpoint, self.definition.functions)
        typename = f"{namespace}/{name}"
        address = Address(known.stored_name(typename), id_)
        with self._reading:  # one at a time: it takes memory and a core
            report = with_state(
                checkpoint,
                None,
                lambda state: address_report(state, address, known, is_newest=True),
            )
        return None if report.is_empty else report_json(report)

    def _called(self) -> Iterable[str]:
        return (name for name in self.figures.functions if not name.startswith("statefun."))

    def _function(self, name: str) -> Json:
        found = self.figures.functions.get(name, FunctionFigures())
        calls = sum(found.durations.counts)
        function = self.definition.functions.find(name)
        is_remote = function is not None and function.transport is not None
        return {
            "name": name,
            "is_remote": is_remote,
            "values": sorted(function.specs) if function is not None else [],
            "invocations": found.invocations,
            "mean_seconds": found.durations.seconds / calls if calls else None,
            "retries": found.retries,
            "failures": dict(found.failures),
            "messages": dict(found.messages),
            "records": dict(found.records),
        }


def _kind(source: KafkaIngress | ConnectorIngress) -> str:
    return source.kind if isinstance(source, ConnectorIngress) else "io.statefun.kafka.v1/ingress"


def _iso(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, timezone.utc).isoformat()
