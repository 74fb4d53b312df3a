# SPDX-License-Identifier: Apache-2.0
"""A Kafka cluster: its records, the producers that may write, and requests on their way."""

from __future__ import annotations

import contextlib
from collections import defaultdict, deque
from collections.abc import Callable, Iterable

import attrs

from simulation.chaos import Chaos
from statefun.engine.sinks import EgressRecord
from statefun.runtime.egress.lane import UncertainError
from statefun.runtime.egress.marker import Marker


@attrs.define
class Transaction:
    """The open transaction of a transactional id."""

    records: list[EgressRecord] = attrs.field(factory=list)
    marker: Marker | None = None


class Broker:
    """A cluster of one."""

    def __init__(self, chaos: Chaos) -> None:
        self._chaos = chaos
        self.log: dict[str, list[bytes]] = defaultdict(list)
        """The records that a read-committed reader sees, by egress."""
        self.markers: dict[str, Marker] = {}
        self.lanes = 0
        """How many lanes the progress topics have markers for."""
        self._epochs: dict[str, int] = defaultdict(int)
        self._open: dict[str, Transaction] = {}
        self._late: deque[Callable[[], object]] = deque()

    def ask(self, request: Callable[[], int | None]) -> int | None:
        """Send a request: it or its reply may be lost, and it may arrive much later."""
        self._chaos.step()
        generator = self._chaos.random
        if generator.random() < 0.3:
            self._chaos.clock.advance(generator.randrange(self._chaos.slowness + 1))
        if generator.random() < 0.3:
            self.deliver_late()
        if self._chaos.happens(self._chaos.troubles):
            trouble = generator.randrange(3)
            if trouble == 0:
                raise UncertainError("the request was lost")
            if trouble == 1:
                self._late.append(request)
                raise UncertainError("the request is late")
            request()
            raise UncertainError("the reply was lost")
        result = request()
        self._chaos.step()
        return result

    def deliver_late(self) -> None:
        """Let any one of the requests on their way arrive."""
        if not self._late:
            return
        generator = self._chaos.random
        self._late.rotate(generator.randrange(len(self._late)))
        with contextlib.suppress(UncertainError):  # nobody hears of it
            self._late.popleft()()

    def deliver_all_late(self) -> None:
        """Let all of them arrive."""
        while self._late:
            self.deliver_late()

    def init(self, id_: str) -> int:
        """Abort the open transaction, and fence the id's former producer."""
        self._open.pop(id_, None)
        self._epochs[id_] += 1
        return self._epochs[id_]

    def produce(
        self, id_: str, epoch: int, records: Iterable[EgressRecord], marker: Marker | None
    ) -> None:
        """Add to the open transaction."""
        self._check(id_, epoch)
        transaction = self._open.setdefault(id_, Transaction())
        transaction.records.extend(records)
        transaction.marker = marker or transaction.marker

    def commit(self, id_: str, epoch: int) -> None:
        """Make the open transaction visible."""
        self._check(id_, epoch)
        transaction = self._open.pop(id_, Transaction())
        self.log[_egress(id_)].extend(record.value or b"" for record in transaction.records)
        if transaction.marker is not None:
            self.markers[id_] = transaction.marker

    def _check(self, id_: str, epoch: int) -> None:
        if self._epochs[id_] != epoch:
            raise UncertainError("fenced")


class ExactlyOnceModel:
    """The steps of ``ExactlyOnce``, on the model."""

    def __init__(self, broker: Broker, id_: str) -> None:
        self._broker = broker
        self._id = id_
        self._epoch = 0

    def open(self) -> Marker | None:
        """Fence, then read."""
        self._epoch = self._broker.ask(lambda: self._broker.init(self._id)) or 0
        self._broker.ask(lambda: None)  # the read may fail as well
        return self._broker.markers.get(self._id)

    def write(self, records: Iterable[EgressRecord], marker: Marker) -> None:
        """Produce in two requests, and commit."""
        broker, id_, epoch = self._broker, self._id, self._epoch
        sent = list(records)
        half = len(sent) // 2
        broker.ask(lambda: broker.produce(id_, epoch, sent[:half], None))
        broker.ask(lambda: broker.produce(id_, epoch, sent[half:], marker))
        broker.ask(lambda: broker.commit(id_, epoch))

    def close(self) -> None:
        """Nothing is told to the broker."""


class AtLeastOnceModel:
    """The steps of ``AtLeastOnce``, on the model."""

    def __init__(self, broker: Broker, id_: str) -> None:
        self._broker = broker
        self._id = id_

    def open(self) -> Marker | None:
        """Nobody keeps note."""
        return None

    def write(self, records: Iterable[EgressRecord], marker: Marker) -> None:
        """Produce; visible at once."""
        sent = [record.value or b"" for record in records]
        self._broker.ask(lambda: self._broker.log[_egress(self._id)].extend(sent))

    def close(self) -> None:
        """Nothing is told to the broker."""


def _egress(id_: str) -> str:
    """Return which egress has a transactional id: the checkpoint's own, the egress, the lane."""
    return id_.partition("/")[2].rpartition("/")[0]
