# SPDX-License-Identifier: Apache-2.0
"""The programs of other languages, asked directly: this needs neither Spark nor a broker."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from contextlib import closing
from http.client import HTTPConnection

import pytest
from languages.servers import LANGUAGES, NAMESPACE, Language, Server
from patience import SECONDS

from statefun.protocol.kafka_egress_pb2 import KafkaProducerRecord
from statefun.protocol.request_reply_pb2 import Address, FromFunction, ToFunction, TypedValue
from statefun.protocol.types_pb2 import LongWrapper, StringWrapper

HOUR = 60 * 60 * 1000
COMMANDS = f"{NAMESPACE}/commands"
LONG = "io.statefun.types/long"
STRING = "io.statefun.types/string"
OTHER = f"{NAMESPACE}/other"
LATER = "t-1"
NESTED = [{"do": "add", "by": 2, "name": "nested <&> Grüße"}]
ALL_COMMANDS = [
    {"do": "add", "by": 5, "name": "first"},
    {"do": "add", "by": -7, "name": "Grüße"},
    {"do": "send", "to": OTHER, "id": "a/b", "commands": NESTED},
    {"do": "after", "milliseconds": 1500, "to": OTHER, "id": "ä", "commands": [], "token": LATER},
    {"do": "cancel", "token": LATER},
    {"do": "after", "milliseconds": 0, "to": OTHER, "id": "c", "commands": NESTED},
    {"do": "remember", "text": "something"},
    {"do": "recall", "name": "before"},
    {"do": "forget"},
    {"do": "recall", "name": "after"},
]

Values = Mapping[str, TypedValue]
EMPTY = {"total": TypedValue(), "note": TypedValue()}


class Client:
    """Speaks the protocol with the function of a server, over one connection."""

    def __init__(self, connection: HTTPConnection, typename: str) -> None:
        self._connection = connection
        self._typename = typename

    def post(self, state: Values, *batch: object) -> tuple[int, FromFunction]:
        """Send lists of commands; return the status and the reply."""
        request = ToFunction()
        request.invocation.target.CopyFrom(address(self._typename, "Ada"))
        for name, value in state.items():
            request.invocation.state.add(state_name=name).state_value.CopyFrom(value)
        for commands in batch:
            argument = typed(COMMANDS, json.dumps(commands).encode())
            request.invocation.invocations.add(argument=argument)
        content_type = {"Content-Type": "application/octet-stream"}
        self._connection.request("POST", "/", request.SerializeToString(), content_type)
        response = self._connection.getresponse()
        content = response.read()
        return response.status, FromFunction.FromString(content if response.status == 200 else b"")

    def result(self, state: Values, *batch: object) -> FromFunction.InvocationResponse:
        """Send lists of commands; return their effects."""
        status, reply = self.post(state, *batch)
        assert status == 200
        # some languages answer nothing at all when there are no effects
        assert reply.WhichOneof("response") in {"invocation_result", None}
        return reply.invocation_result

    def record(self, topic: str, **value: object) -> KafkaProducerRecord:
        """Return a record of the function as ``records`` does."""
        value["address"] = f"{self._typename}/Ada"
        content = json.dumps(value, sort_keys=True).encode()
        return KafkaProducerRecord(key="Ada", topic=topic, value_bytes=content)


def typed(typename: str, value: bytes) -> TypedValue:
    """Return a value that is there, be it empty or not."""
    return TypedValue(typename=typename, has_value=True, value=value)


def long(value: int) -> TypedValue:
    """Return a number as functions keep it."""
    return typed(LONG, LongWrapper(value=value).SerializeToString())


def string(value: str) -> TypedValue:
    """Return a text as functions keep it."""
    return typed(STRING, StringWrapper(value=value).SerializeToString())


def address(typename: str, id_: str) -> Address:
    """Return an address."""
    namespace, _, name = typename.rpartition("/")
    return Address(namespace=namespace, type=name, id=id_)


def plain(argument: TypedValue) -> object:
    """Return the commands of a message, which each language formats as it likes."""
    assert (argument.typename, argument.has_value) == (COMMANDS, True)
    return json.loads(argument.value)


def records(egresses: Iterable[FromFunction.EgressMessage]) -> list[KafkaProducerRecord]:
    """Return what was sent to Kafka, with its JSON in one format."""
    found = []
    for egress in egresses:
        assert f"{egress.egress_namespace}/{egress.egress_type}" == f"{NAMESPACE}/out"
        argument = egress.argument
        assert argument.has_value
        assert (
            argument.typename == f"type.googleapis.com/{KafkaProducerRecord.DESCRIPTOR.full_name}"
        )
        record = KafkaProducerRecord.FromString(argument.value)
        record.value_bytes = json.dumps(json.loads(record.value_bytes), sort_keys=True).encode()
        found.append(record)
    return found


def mutations(
    result: FromFunction.InvocationResponse,
) -> dict[str, FromFunction.PersistedValueMutation]:
    """Return changes of state by name, for some languages have no order of values."""
    found = {mutation.state_name: mutation for mutation in result.state_mutations}
    assert len(found) == len(result.state_mutations)
    return found


def modified(name: str, value: TypedValue) -> FromFunction.PersistedValueMutation:
    """Return the change that sets a value."""
    kind = FromFunction.PersistedValueMutation.MODIFY
    return FromFunction.PersistedValueMutation(
        mutation_type=kind, state_name=name, state_value=value
    )


def deleted(name: str) -> FromFunction.PersistedValueMutation:
    """Return the change that deletes a value."""
    kind = FromFunction.PersistedValueMutation.DELETE
    return FromFunction.PersistedValueMutation(mutation_type=kind, state_name=name)


def check_missing_values(client: Client) -> None:
    """Without values the function asks for both."""
    status, reply = client.post({}, ALL_COMMANDS)
    assert (status, reply.WhichOneof("response")) == (200, "incomplete_invocation_context")
    asked = reply.incomplete_invocation_context.missing_values
    assert sorted(
        (
            spec.state_name,
            spec.type_typename,
            spec.expiration_spec.mode,
            spec.expiration_spec.expire_after_millis,
        )
        for spec in asked
    ) == [
        ("note", STRING, FromFunction.ExpirationSpec.AFTER_WRITE, HOUR),
        ("total", LONG, FromFunction.ExpirationSpec.NONE, 0),
    ]


def check_all_commands(client: Client) -> None:
    """With empty values all commands have their effects."""
    result = client.result(EMPTY, ALL_COMMANDS)
    assert mutations(result) == {"total": modified("total", long(-2)), "note": deleted("note")}
    assert [(one.target, plain(one.argument)) for one in result.outgoing_messages] == [
        (address(OTHER, "a/b"), NESTED),
    ]
    first, cancellation, second = result.delayed_invocations
    assert [
        (one.target, one.delay_in_ms, one.cancellation_token, one.is_cancellation_request)
        for one in (first, second)
    ] == [(address(OTHER, "ä"), 1500, LATER, False), (address(OTHER, "c"), 0, "", False)]
    assert [plain(one.argument) for one in (first, second)] == [[], NESTED]
    assert cancellation == FromFunction.DelayedInvocation(
        is_cancellation_request=True, cancellation_token=LATER
    )
    assert records(result.outgoing_egresses) == [
        client.record("totals", name="first", total=5),
        client.record("totals", name="Grüße", total=-2),
        client.record("totals", name="before", note="something"),
        client.record("totals", name="after", note=None),
    ]


def check_later_batch(client: Client) -> None:
    """Values that were kept come back; zero and an empty text are values; a batch shares them."""
    state = {"total": long(2**40), "note": string("kept")}
    result = client.result(
        state,
        [{"do": "recall", "name": "kept"}, {"do": "remember", "text": ""}],
        [{"do": "recall", "name": "empty"}, {"do": "add", "by": -(2**40), "name": "zero"}],
    )
    assert mutations(result) == {
        "total": modified("total", typed(LONG, b"")),
        "note": modified("note", typed(STRING, b"")),
    }
    assert records(result.outgoing_egresses) == [
        client.record("totals", name="kept", note="kept"),
        client.record("totals", name="empty", note=""),
        client.record("totals", name="zero", total=0),
    ]
    state = {"total": typed(LONG, b""), "note": typed(STRING, b"")}
    assert client.result(state, []) == FromFunction.InvocationResponse()


def check_failure(client: Client) -> None:
    """An error of the function is one of the server, and has no effects."""
    status, _ = client.post(EMPTY, [*ALL_COMMANDS, {"do": "fail", "text": "on purpose"}])
    assert status == 500


@pytest.mark.parametrize("language", LANGUAGES, ids=lambda language: language.name)
def test_server(language: Language) -> None:
    """A program of this language speaks the protocol, also after it was killed."""
    if language.missing_tools:
        pytest.skip(f"{language.name} needs {' and '.join(language.missing_tools)} on the PATH")
    with (
        Server(language, results_topic="totals") as server,
        closing(HTTPConnection("127.0.0.1", server.port, timeout=SECONDS)) as connection,
    ):
        client = Client(connection, language.typename)
        check_missing_values(client)
        check_all_commands(client)
        check_later_batch(client)
        check_failure(client)
        server.kill()
        server.start()
        connection.close()
        check_all_commands(client)
