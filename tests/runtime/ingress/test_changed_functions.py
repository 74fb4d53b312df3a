# SPDX-License-Identifier: Apache-2.0
"""Messages that wait in the state of an address while the declaration of its function changes between two runs."""

from __future__ import annotations

from pathlib import Path

import attrs

from statefun import Context, IntType, Message, StatefulFunctions, StringType, ValueSpec
from statefun.engine.address_values import AddressValues
from statefun.engine.clock import BatchClock
from statefun.engine.dispatcher import Dispatcher
from statefun.engine.effects import Effects
from statefun.engine.groups import Group
from statefun.engine.left_calls import LOST, encoded_loss
from statefun.engine.program import Program
from statefun.engine.row import Row
from statefun.runtime.checkpoint.folder import Folder
from statefun.runtime.ingress.holding import WaitingGauge
from statefun.sdk.message import message_builder
from statefun.testing.leaving import ChoosingRunner, Report
from statefun.testing.message_rows import MessageRow, columns_of
from statefun.testing.micro_batch import StoppedClock

SENDER, TARGET = b"Ada\0t/sender", b"Ada\0t/target"
NOW = 1_000_000


@attrs.define
class Runs:
    """Micro-batches of runs whose messages are all delivered in the next micro-batch."""

    checkpoint: Folder
    states: dict[bytes, bytes] = attrs.field(factory=dict)
    handled: list[str] = attrs.field(factory=list)
    """What the target has handled, in order."""
    batch: int = 0

    def functions(self, *, is_coroutine: bool) -> StatefulFunctions:
        """Return a plain function with state that sends what it gets on to another one."""
        functions = StatefulFunctions()

        @functions.bind("t/sender", [ValueSpec("count", IntType)])
        def sender(ctx: Context, message: Message) -> None:
            ctx.storage.count = (ctx.storage.count or 0) + 1
            ctx.send(message_builder("t/target", "Ada", str_value=message.as_string()))

        def plain(_ctx: Context, message: Message) -> None:
            self.handled.append(message.as_string())

        async def coroutine(_ctx: Context, message: Message) -> None:
            self.handled.append(message.as_string())

        functions.register("t/target", coroutine if is_coroutine else plain)
        return functions

    def run(self, *rows: MessageRow, is_coroutine: bool) -> tuple[list[MessageRow], list[Report]]:
        """Run a micro-batch, in which all calls leave; return the messages that it sends, and the results of its calls."""
        runner = ChoosingRunner(lambda: True, lambda: 1000, lambda: False)
        functions, gauge = self.functions(is_coroutine=is_coroutine), WaitingGauge(self.checkpoint)
        dispatcher = Dispatcher(
            Program(functions, {}),
            BatchClock(StoppedClock(NOW), NOW),
            batch=self.batch,
            delivered_up_to=None
            if gauge.may_be_overtaken(functions, self.batch)
            else self.batch - 1,
            concurrency=10,
            immediate=1000,
            runner=runner,
        )
        effects = Effects()
        for key in dict.fromkeys(row.target for row in rows):
            own = [row for row in rows if row.target == key]
            group = Group(key, columns_of(own), 0, len(own), AddressValues(self.states.get(key)))
            for each in dispatcher.dispatch([group], effects):
                if each.values.changed:
                    self.states[key] = each.values.encoded() or b""
        gauge.add(self.batch, [dispatcher.summary()])
        self.batch += 1
        pieces = effects.messages.take()
        sent = [Row(*row) for piece in pieces for row in zip(*piece, strict=True)]
        return [MessageRow(*row) for row in sent], runner.take()


def message(text: str) -> MessageRow:
    """Return a message from outside to the sender."""
    return MessageRow(
        SENDER, None, StringType.typename, bytes(StringType.serializer().serialize(text))
    )


def test_no_message_overtakes_those_that_wait_for_a_call_of_an_earlier_run(tmp_path: Path) -> None:
    """The target was a coroutine function, and is a plain one without state: its messages are immediate again later."""
    runs = Runs(Folder.at(tmp_path))

    first, _ = runs.run(message("1"), is_coroutine=True)
    second, [left] = runs.run(*first, message("2"), is_coroutine=True)
    runs.run(
        *second, is_coroutine=True
    )  # it waits for the result of the call, and nothing is in the outbox
    runs.handled.clear()  # the run ends, and the call has had no effect
    loss = encoded_loss(left.attempt, has_begun=False, has_ended=False)
    third, _ = runs.run(message("3"), MessageRow(TARGET, None, LOST, loss), is_coroutine=False)
    assert [row.target for row in third] == [TARGET]
    runs.run(*third, is_coroutine=False)
    runs.run(message("4"), is_coroutine=False)

    assert runs.handled == ["1", "2", "3", "4"]


def test_no_message_overtakes_waiting_ones_in_a_batch_that_is_repeated(tmp_path: Path) -> None:
    """Its first attempt has delivered the waiting messages, and was not committed: so they wait again."""
    runs = Runs(Folder.at(tmp_path))

    first, _ = runs.run(message("1"), is_coroutine=True)
    second, [left] = runs.run(*first, message("2"), is_coroutine=True)
    runs.run(*second, is_coroutine=True)  # "1" is under way, "2" waits, nothing is in the outbox
    runs.handled.clear()
    lost = encoded_loss(left.attempt, has_begun=False, has_ended=False)
    loss = MessageRow(TARGET, None, LOST, lost)

    # The second run: a micro-batch reads the loss and "3", is staged, and the run ends before its commit.
    states, batch = {**runs.states}, runs.batch
    runs.run(message("3"), loss, is_coroutine=False)
    runs.states, runs.batch = states, batch
    runs.handled.clear()

    # The third run repeats it. Losses are in the driver's memory only: that one comes in the next micro-batch.
    third, _ = runs.run(message("3"), is_coroutine=False)
    fourth, _ = runs.run(*third, loss, is_coroutine=False)
    runs.run(*fourth, is_coroutine=False)

    assert runs.handled == ["1", "2", "3"]
