# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.client import HTTPConnection

from google.protobuf.wrappers_pb2 import StringValue
from local_servers import connected, free_port
from published_package import PROGRAMS

from statefun import IntType, StringType
from statefun.protocol.kafka_egress_pb2 import KafkaProducerRecord
from statefun.protocol.kinesis_egress_pb2 import KinesisEgressRecord
from statefun.protocol.request_reply_pb2 import FromFunction, ToFunction, TypedValue

DAY = 24 * 60 * 60 * 1000


class Runtime:
    """A runtime for one program: keeps its state, and delivers what its functions send at once."""

    def __init__(self, client: HTTPConnection) -> None:
        self._client = client
        self._state: defaultdict[tuple[str, str], dict[str, TypedValue]] = defaultdict(dict)
        self.asked_for: list[FromFunction.PersistedValueSpec] = []
        self.delayed: list[FromFunction.DelayedInvocation] = []
        self.egresses: list[FromFunction.EgressMessage] = []

    def send(self, typename: str, id_: str, argument: TypedValue, caller: str = "") -> None:
        """Deliver a message, and whatever follows from it."""
        state = self._state[typename, id_]
        request = ToFunction()
        batch = request.invocation
        batch.target.namespace, _, batch.target.type = typename.rpartition("/")
        batch.target.id = id_
        for name, value in state.items():
            batch.state.add(state_name=name, state_value=value)
        invocation = batch.invocations.add(argument=argument)
        if caller:
            sender, _, invocation.caller.id = caller.rpartition("#")
            invocation.caller.namespace, _, invocation.caller.type = sender.rpartition("/")
        self._client.request("POST", "/statefun", request.SerializeToString())
        response = self._client.getresponse()
        content = response.read()
        assert response.status == 200, content
        reply = FromFunction.FromString(content)
        missing = reply.incomplete_invocation_context.missing_values
        if missing:
            assert not {spec.state_name for spec in missing} & set(state)
            self.asked_for += missing
            state |= {spec.state_name: TypedValue() for spec in missing}
            self.send(typename, id_, argument, caller)
            return
        result = reply.invocation_result
        for mutation in result.state_mutations:
            state[mutation.state_name] = mutation.state_value
        self.delayed += result.delayed_invocations
        self.egresses += result.outgoing_egresses
        for message in result.outgoing_messages:
            target = message.target
            if (target.type, target.id) != (batch.target.type, id_):  # not itself, without end
                name = f"{target.namespace}/{target.type}"
                self.send(name, target.id, message.argument, f"{typename}#{id_}")

    def value(self, typename: str, id_: str, name: str) -> TypedValue:
        """Return a value that a function keeps."""
        return self._state[typename, id_][name]


@contextmanager
def running(name: str) -> Iterator[tuple[Runtime, subprocess.Popen[str]]]:
    """Start a program; yield a runtime for it, and its process."""
    port = free_port()
    command = [sys.executable, str(PROGRAMS / name), str(port)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            with closing(connected(port, process)) as client:
                yield Runtime(client), process
        finally:
            process.terminate()


def text(value: str) -> TypedValue:
    """Return a string as functions get it."""
    content = StringType.serializer().serialize(value)
    return TypedValue(typename=StringType.typename, has_value=True, value=content)


def greet_request(typename: str, **value: object) -> TypedValue:
    """Return a JSON document as functions get it."""
    return TypedValue(typename=typename, has_value=True, value=json.dumps(value).encode())


def test_hello() -> None:
    """A message of any type is read as it came."""
    with running("hello.py") as (runtime, process):
        argument = TypedValue(typename="example/text", has_value=True, value="Grüße".encode())
        runtime.send("example/hello", "Ada", argument)
        process.terminate()
        assert process.stdout is not None
        assert "Ada was told: Grüße\n" in process.stdout.read()


def test_greeter() -> None:
    """State counts, and what goes to Kafka says so."""
    with running("greeter.py") as (runtime, _):
        for _visit in range(3):
            runtime.send("example/person", "Ada", greet_request("example/GreetRequest", name="Ada"))

        records = [KafkaProducerRecord.FromString(one.argument.value) for one in runtime.egresses]
        assert [record.value_bytes.decode() for record in records] == [
            f"Welcome Ada, for the {visit}. time" for visit in (1, 2, 3)
        ]
        assert {(record.topic, record.key) for record in records} == {("greetings", "Ada")}
        assert [spec.state_name for spec in runtime.asked_for] == ["visits"]
        visits = runtime.value("example/person", "Ada", "visits")
        assert IntType.serializer().deserialize(visits.value) == 3


def test_showcase() -> None:
    """Everything that the API has."""
    with running("showcase.py") as (runtime, process):
        runtime.send("showcase/messaging", "Ada", text("hello"))
        (delayed,) = runtime.delayed
        assert delayed.delay_in_ms == DAY / 144
        runtime.send("showcase/types", "9", delayed.argument)
        runtime.send("showcase/types", "9", TypedValue(typename="a/b", has_value=True))
        runtime.send("showcase/egress", "Ada", text("hello"))
        kafka, kinesis, own = (one.argument for one in runtime.egresses)
        assert KafkaProducerRecord.FromString(kafka.value).value_bytes == b"value"
        assert KinesisEgressRecord.FromString(kinesis.value).explicit_hash_key == "hash"
        assert json.loads(own.value) == {"name": "Bob"}
        runtime.send("showcase/storage", "Ada", text("hello"))
        assert [spec.expiration_spec.expire_after_millis for spec in runtime.asked_for] == [
            *(0, 7 * DAY, 0),
        ]
        number = runtime.value("showcase/storage", "Ada", "number")
        assert IntType.serializer().deserialize(number.value) == 42
        assert not runtime.value("showcase/storage", "Ada", "request").has_value
        runtime.send("showcase/async", "Ada", text("who?"), caller="showcase/types#Grace")
        profile = runtime.value("showcase/async", "Ada", "profile")
        assert StringValue.FromString(profile.value).value == "Ada"
        process.terminate()
        assert process.stdout is not None
        printed = process.stdout.read()
    shown = [line.removeprefix("value: ") for line in printed.splitlines() if "value: " in line]
    assert shown == [
        *("True", "123", "0.5", "hi", "1.23", "123456789", "{'name': 'Joe'}", "Joe"),
        *("later", "None", "Ada"),
    ]
    assert "io.statefun.types/string: b'\\n\\x05hello'" in printed
    assert "number: None, text: None" in printed
