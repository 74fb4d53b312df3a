# SPDX-License-Identifier: Apache-2.0
"""One micro-batch in this process: calls the functions, and collects what they do.

Nothing of the world is changed here: a micro-batch that is not committed has never been.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta, timezone

from statefun.module.letters import Original, facts, origin_text
from statefun.module.model import Module
from statefun.module.policies import Policies
from statefun.module.rejected_records import rejected
from statefun.module.sinks import EgressRecord, egress_record, sinks_of
from statefun.module.topic_routes import RECORDS
from statefun.module.transforming import place_of
from statefun.remote.circuit import take_news
from statefun.sdk.address import Address
from statefun.sdk.context import DelayedMessage, token_in_use
from statefun.sdk.deadline import Alarm
from statefun.sdk.egress import EgressMessage, KafkaEgressMessage
from statefun.sdk.errors import PlatformError, RecordError, StatefunError
from statefun.sdk.event_loop import await_all, beside_loops
from statefun.sdk.failure import FailurePolicy, OnFailure, Retry
from statefun.sdk.functions import StatefulFunctions
from statefun.sdk.invocation import invoke, invoke_async
from statefun.sdk.invocation_batch import (
    FailedInvocation,
    Invocation,
    InvocationBatch,
    InvocationResult,
)
from statefun.sdk.message import Message
from statefun.sdk.raised import class_name, deserializer_failed
from statefun.sdk.record import IngressRecord, KafkaRecord
from statefun.sdk.stateful_function import StatefulFunction
from statefun.sdk.types import TypedValue, encoded
from statefun.testing.happenings import Delayed, Effects, Kept, Pending, present, renewed
from statefun.testing.twice import check_same

_EPOCH = datetime.fromtimestamp(0, timezone.utc)
_MILLISECOND = timedelta(milliseconds=1)
_SIDE_BY_SIDE = 1000
"""How many coroutines of different addresses run at a time: the default of a worker."""


class Functions:
    """Calls the functions of an application."""

    def __init__(self, functions: StatefulFunctions, module: Module, *, twice: bool) -> None:
        self._functions = functions
        self._sinks = sinks_of(module)
        self._policies = Policies.of(module, OnFailure.FAIL)
        self._deserializers = module.deserializers
        self._twice = twice
        self._begun = 0
        """The time of the micro-batch, in milliseconds since the epoch."""

    def run(
        self,
        groups: Sequence[tuple[Address, list[Pending]]],
        states: Mapping[Address, Mapping[str, Kept]],
        now: datetime,
    ) -> Effects:
        """Call the function at each address with its messages, and return the effects.

        Raises:
            StatefunError: if a failure policy is to fail.
            NotDeterministicError: if functions are called twice, and one of them is not.
        """
        effects = Effects()
        self._begun = (now - _EPOCH) // _MILLISECOND
        coroutines = []
        for address, messages in groups:
            kept = present(states.get(address, {}), now)
            function = self._functions.for_typename(address.typename)
            ready = list(self._deserialized(function, messages, effects, now))
            if not ready:
                continue
            if function.is_async:
                coroutines.append((function, address, ready, kept))
            else:
                result = self._called(function, _batch(address, ready, kept, self._policies))
                self._collect(function, address, ready, kept, result, effects, now)
        if coroutines:
            calls = [self._called_async(*each) for each in coroutines]
            results = beside_loops(lambda: await_all(calls, _SIDE_BY_SIDE))
            for (function, address, ready, kept), outcome in zip(coroutines, results, strict=True):
                if isinstance(outcome, BaseException):
                    raise outcome
                self._collect(function, address, ready, kept, outcome, effects, now)
        return effects

    def _called(self, function: StatefulFunction, batch: InvocationBatch) -> InvocationResult:
        result = invoke(function, batch, self._check)
        if self._twice:
            check_same(batch.target, result, invoke(function, batch, self._check))
        return result

    async def _called_async(
        self,
        function: StatefulFunction,
        address: Address,
        ready: Sequence[Pending],
        kept: Mapping[str, Kept],
    ) -> InvocationResult:
        batch = _batch(address, ready, kept, self._policies)
        result = await invoke_async(function, batch, self._check)
        if self._twice:
            check_same(batch.target, result, await invoke_async(function, batch, self._check))
        return result

    def _check(self, sent: Message | EgressMessage) -> Message | KafkaEgressMessage | None:
        """Refuse what is sent to nowhere, as the runtime does."""
        if isinstance(sent, Message):
            self._functions.for_typename(sent.target_typename)
            return sent
        return egress_record(sent, self._sinks, self._begun)

    def _deserialized(
        self,
        function: StatefulFunction,
        messages: Iterable[Pending],
        effects: Effects,
        now: datetime,
    ) -> Iterator[Pending]:
        for message in messages:
            if not message.is_encoded or message.record is None:
                yield message
                continue
            name = message.argument.typename
            try:
                with Alarm(function.timeout, message.target) as alarm:
                    alarm.begin()
                    value = self._deserializers[name].read(message.record)
                if value is not None:
                    argument = encoded(value, self._deserializers[name].value_type)
                    yield message._replace(decoded=argument)
            except BaseException as error:  # noqa: BLE001 - users' code may raise any exception
                failure = deserializer_failed(name, message.target, error)
                topic = message.record.topic
                policy = self._policies.of_failure(function.on_failure, topic, failure)
                self._handle(message, failure, class_name(error), policy, effects, now)

    def _collect(  # noqa: PLR0913, PLR0917 - the parts of a call
        self,
        function: StatefulFunction,
        address: Address,
        messages: Sequence[Pending],
        kept: Mapping[str, Kept],
        result: InvocationResult,
        effects: Effects,
        now: datetime,
    ) -> None:
        """Take over the effects of a call.

        Raises:
            PlatformError: if the function's endpoint cannot be reached; it should not be long.
        """
        if result.postponed is not None:
            problems = "; ".join(f"{news.endpoint} {news.problem}" for news in take_news())
            raise PlatformError(f"messages to {address} would wait: endpoint {problems}")
        effects.states[address] = renewed(kept, result, now)
        for sent in result.messages:
            effects.messages.append(_pending(sent, address))
        for each in result.delayed:
            if isinstance(each, DelayedMessage):
                later = Delayed(
                    now + each.delay, _pending(each.message, address), each.cancellation_token
                )
                effects.delayed.append((address, later))
            else:
                effects.delayed.append((address, each))
        for record in result.egress_messages:
            if isinstance(record, KafkaEgressMessage):
                effects.records.append((record.typename, _row(record)))
        for failed in result.failures:
            self._fail(function, messages[failed.index], failed, effects, now)

    def _fail(
        self,
        function: StatefulFunction,
        message: Pending,
        failed: FailedInvocation,
        effects: Effects,
        now: datetime,
    ) -> None:
        topic = None if message.record is None else message.record.topic
        policy = self._policies.of_failure(function.on_failure, topic, failed.error)
        self._handle(message, failed.error, failed.cause, policy, effects, now)

    def _handle(  # noqa: PLR0913, PLR0917 - the parts of a failure
        self,
        message: Pending,
        error: StatefunError,
        cause: str,
        policy: FailurePolicy | None,
        effects: Effects,
        now: datetime,
    ) -> None:
        """Apply a failure policy."""
        attempts = message.attempts + 1
        text = f"{error.message} ({origin_text(message.record, message.caller)})"
        if isinstance(policy, Retry) and attempts < policy.attempts:
            due = now + policy.backoff * 2 ** (attempts - 1)
            again = Delayed(due, message._replace(attempts=attempts, decoded=None), "")
            effects.delayed.append((message.target, again))
            return
        match self._policies.last_resort(policy):
            case OnFailure.FAIL:
                raise type(error)(text)
            case OnFailure.SKIP:
                effects.skipped.append(text)
            case OnFailure.DEAD_LETTER:
                self._bury(message, error, cause, attempts, effects, now)

    def _bury(  # noqa: PLR0913, PLR0917 - as above
        self,
        message: Pending,
        error: StatefunError,
        cause: str,
        attempts: int,
        effects: Effects,
        now: datetime,
    ) -> None:
        place, record = self._policies.dead_letters, message.record
        if place is None:
            raise AssertionError("a policy without its topic does not pass the binding check")
        is_rejected = isinstance(error, RecordError) and not message.target.id
        about = facts(
            error,
            cause,
            attempts=attempts,
            time=(now - _EPOCH) // _MILLISECOND,
            caller=message.caller,
            origin={} if record is None else _origin(record),
            typename=f"{RECORDS * message.is_encoded}{message.argument.typename}",
            target=None if is_rejected else message.target,
        )
        key = message.target.id.encode() if record is None else record.key
        value = message.argument.value if record is None else record.value
        original = Original(key, value, () if record is None else record.headers)
        whole = () if is_rejected or key == message.target.id.encode() else ("target",)
        letter, left_out = place.letter(original, about, whole)
        if left_out and record is None:  # no other header has it
            origin = origin_text(record, message.caller)
            raise type(error)(place.too_large(f"{error.message} ({origin})"))
        effects.records.append((place.egress, letter))

    def reject(self, reason: str, record: KafkaRecord, effects: Effects, now: datetime) -> None:
        """Apply the policy of its topic to a record that no function can receive.

        Raises:
            StatefunError: if the policy is to fail.
        """
        nowhere = Address("statefun.rejected", reason, "")
        message = Pending(nowhere, None, TypedValue("", b""), record)
        route = self._policies.route_of(record.topic)
        error = rejected(reason, place_of(record), route, record.key, record.value)
        policy = self._policies.of_topic(record.topic)
        self._handle(message, error, class_name(error), policy, effects, now)

    def token_in_use(
        self, sender: Address, later: Delayed, effects: Effects, now: datetime
    ) -> None:
        """Apply the sender's policy to a delayed message whose cancellation token is in use.

        Raises:
            StatefunError: if the policy is to fail.
        """
        error = token_in_use(sender, later.token)
        policy = self._policies.last_resort(
            self._functions.for_typename(sender.typename).on_failure
        )
        self._handle(later.message, error, class_name(error), policy, effects, now)


def _batch(
    address: Address,
    messages: Sequence[Pending],
    kept: Mapping[str, Kept],
    policies: Policies,
) -> InvocationBatch:
    def record(index: int) -> IngressRecord | None:
        found = messages[index].record
        if found is None:
            return None
        return policies.seen_record(
            IngressRecord(
                found.topic, found.partition, found.offset, found.timestamp, found.headers
            )
        )

    invocations = [
        Invocation(each.caller, each.decoded or each.argument, each.trace) for each in messages
    ]
    return InvocationBatch(
        address, {name: each.value for name, each in kept.items()}, invocations, record
    )


def _pending(message: Message, caller: Address) -> Pending:
    target = Address(message.target_typename, message.target_id)
    return Pending(target, caller, message.typed_value, trace=message.trace)


def _row(record: KafkaEgressMessage) -> EgressRecord:
    key = None if record.key is None else record.key.encode()
    return EgressRecord(record.topic, key, record.value, record.headers)


def _origin(record: KafkaRecord) -> dict[str, object]:
    return {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": (record.timestamp - _EPOCH) // _MILLISECOND,
    }
