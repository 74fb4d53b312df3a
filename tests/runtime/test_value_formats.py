# SPDX-License-Identifier: Apache-2.0
"""The formats of records' values and keys, from a real broker to functions."""

from __future__ import annotations

import json
import struct
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from harness import KafkaHarness, run
from schema_registry import schema_registry

from statefun import (
    BindingError,
    ConfigurationError,
    Context,
    DefinitionError,
    FunctionError,
    KafkaEgressMessage,
    Message,
    StatefulFunctions,
    TypedValue,
    ValueDecodeError,
    make_avro_type,
    make_schema_registry_type,
    simple_type,
)
from statefun.formats.avro import encode
from statefun.formats.protobuf import make_described_protobuf_type
from statefun.module.loader import parse_module
from statefun.protocol import types_pb2
from statefun.runtime.letters.dead_letters import DeadLetters
from statefun.runtime.letters.letter_ends import LetterEnds
from statefun.runtime.letters.letter_filter import LetterFilter
from statefun.sdk.types import default_types

pytestmark = [pytest.mark.broker, pytest.mark.spark]

USER = json.dumps(
    {"type": "record", "name": "User", "fields": [{"name": "name", "type": "string"}]}
)
WITH_AGE = json.dumps(
    {
        "type": "record",
        "name": "User",
        "fields": [
            {"name": "name", "type": "string"},
            {"name": "age", "type": "int", "default": 7},
        ],
    }
)
OBJECT = '{"$schema": "http://json-schema.org/draft-07/schema#", "type": "object"}'
MESSAGE = "io.statefun.sdk.types.StringWrapper"
UUID = simple_type("test.formats/hex", bytes.fromhex, bytes.hex)


@pytest.fixture(scope="module")
def registry() -> Iterator[str]:
    """Run a schema registry."""
    with schema_registry() as url:
        yield url


@pytest.fixture
def descriptors(tmp_path: Path) -> Path:
    """Write a descriptor set like protoc's, for this project's own wrapper types."""
    file = tmp_path / "types.desc"
    described = FileDescriptorSet()
    types_pb2.DESCRIPTOR.CopyToProto(described.file.add())
    file.write_bytes(described.SerializeToString())
    return file


def values(out: str) -> StatefulFunctions:
    """Return a function that writes its messages' values, by id."""
    functions = StatefulFunctions()

    @functions.bind("test.fns/show")
    def show(ctx: Context, message: Message) -> None:
        value = message.value()
        text = f"{message.value_typename()} {value if isinstance(value, dict) else str(value)}"
        ctx.send(KafkaEgressMessage("test/out", topic=out, key=ctx.address.id, value=text.strip()))

    return functions


def module(kafka: KafkaHarness, dead: str, *topics: str) -> str:
    """Write a module file with these topics."""
    text = kafka.module({}, start="{type: earliest}", dead_letters=dead)
    listed = "".join(f"    - {{{topic}, targets: [test.fns/show]}}\n" for topic in topics)
    text = text.replace(
        f"  deadLetterTopic: {dead}\n", f"  deadLetterTopic: {dead}\n  replayTopic: {dead}-again\n"
    )
    return text.replace("  topics:\n", f"  topics:\n{listed}")


def test_values_are_read_in_the_format_of_their_topic(
    kafka: KafkaHarness, checkpoint: Path, registry: str, descriptors: Path
) -> None:
    """Values of another format are records that no function can receive, and stay unchanged."""
    names = ("text", "json", "protobuf", "avro", "registry")
    topics = {name: kafka.topic(name) for name in names}
    out, dead = kafka.topic("out"), kafka.topic("dead")
    kafka.topic("dead-again")
    client = SchemaRegistryClient({"url": registry})
    number = client.register_schema("users-value", Schema(USER, "AVRO"))
    as_json = client.register_schema("json-value", Schema(OBJECT, "JSON"))
    as_protobuf = client.register_schema(
        "proto-value", Schema('syntax = "proto3"; message A { string a = 1; }', "PROTOBUF")
    )
    good: dict[str, list[bytes]] = {
        "text": ["Ada Löwe".encode()],
        "json": [b'{"name": "Ada"}'],
        "protobuf": [types_pb2.StringWrapper(value="Ada").SerializeToString()],
        "avro": [encode({"name": "Ada"}, USER)],
        "registry": [
            struct.pack(">bI", 0, number) + encode({"name": "Ada"}, USER),
            struct.pack(">bI", 0, as_json) + b'{"name": "Eve"}',
        ],
    }
    bad: dict[str, list[bytes]] = {
        "text": [b"\xff"],
        "json": [b"{"],
        "protobuf": [b"\x0a\xff"],
        "avro": [b"\xff", b"\x06Adamant"],
        "registry": [b"\x01\0\0\0\0", b"\0", struct.pack(">bI", 0, as_protobuf) + b"a"],
    }
    for records in (good, bad):
        for name, contents in records.items():
            kafka.send(topics[name], [(f"{name}{n}", value) for n, value in enumerate(contents)])
    text = module(
        kafka,
        dead,
        f"topic: '{topics['text']}', valueFormat: {{type: text}}",
        f"topic: '{topics['json']}', valueFormat: {{type: json}}, valueType: test.formats/json",
        f"topic: '{topics['protobuf']}', valueType: test.formats/protobuf, valueFormat: "
        f"{{type: protobuf, descriptorSet: '{descriptors}', message: {MESSAGE}}}",
        f"topic: '{topics['avro']}', valueType: test.formats/avro, valueFormat: "
        f"{{type: avro, schema: '{USER}'}}",
        f"topic: '{topics['registry']}', valueType: test.formats/registry, valueFormat: "
        f"{{type: schema-registry, url: '{registry}', schema: '{WITH_AGE}'}}",
    )
    run(text, values(out), checkpoint)
    assert sorted((record.key, record.value) for record in kafka.receive(out)) == [
        ("avro0", "test.formats/avro {'name': 'Ada'}"),
        ("json0", "test.formats/json {'name': 'Ada'}"),
        ("protobuf0", 'test.formats/protobuf value: "Ada"'),
        ("registry0", "test.formats/registry {'name': 'Ada', 'age': 7}"),
        ("registry1", "test.formats/registry {'name': 'Eve'}"),
        ("text0", "io.statefun.types/string Ada Löwe"),
    ]
    letters = sorted(letter.value or b"" for letter in DeadLetters(parse_module(text)).read())
    assert letters == sorted(content for contents in bad.values() for content in contents)


def test_ids_are_the_string_form_of_typed_keys(kafka: KafkaHarness, checkpoint: Path) -> None:
    """A key that is none goes to the dead letters; a replay finds the address again."""
    topics = {name: kafka.topic(name) for name in ("int", "long", "hex", "plain")}
    out, dead = kafka.topic("out"), kafka.topic("dead")
    kafka.topic("dead-again")
    keys: dict[str, list[bytes | None]] = {
        "int": [(-7).to_bytes(4, "big", signed=True), b"abc"],
        "long": [(2**40).to_bytes(8, "big"), b""],
        "hex": [b"\xca\xfe", None],
        "plain": [b"Ada", b"\xff"],
    }
    producer = Producer({"bootstrap.servers": kafka.address})
    for name, listed in keys.items():
        for key in listed:
            producer.produce(topics[name], b'"x"', key)
    producer.produce(topics["int"], b"{", (9).to_bytes(4, "big"))
    assert producer.flush(30) == 0
    json_ = "valueType: test.formats/json, valueFormat: {type: json}"
    text = module(
        kafka,
        dead,
        f"topic: '{topics['int']}', keyType: io.statefun.kafka/int, {json_}",
        f"topic: '{topics['long']}', keyType: io.statefun.kafka/long, {json_}",
        f"topic: '{topics['hex']}', keyType: {UUID.typename}, {json_}",
        f"topic: '{topics['plain']}', {json_}",
    )
    run(text, values(out), checkpoint)
    found = sorted(str(record.key) for record in kafka.receive(out))
    assert found == ["-7", "1099511627776", "Ada", "cafe"]
    letters = {letter.key: letter for letter in DeadLetters(parse_module(text)).read()}
    nine = (9).to_bytes(4, "big")
    assert letters.keys() == {b"abc", b"", None, b"\xff", nine}
    for key, reason in (
        (
            b"abc",
            "is not of the topic's keyType: ValueError: a number of 4 bytes cannot be decoded from 3 bytes",
        ),
        (b"\xff", "UnicodeDecodeError: 'utf-8' codec can't decode byte 0xff in position 0"),
    ):
        assert reason in letters[key].facts["error-message"]
    assert letters[nine].facts["target"] == "test.fns/show/9"

    ends = LetterEnds(DeadLetters(parse_module(text)))
    assert ends.replay(LetterFilter.of([letters[nine].id]), to_target=True).count == 1
    run(text, values(out), checkpoint)
    [again] = [
        letter for letter in DeadLetters(parse_module(text)).read() if letter.facts.get("target")
    ]
    assert again.facts["target"] == "test.fns/show/9"
    assert (again.key, again.facts["topic"]) == (nine, topics["int"])


@pytest.mark.parametrize(
    ("topic", "message"),
    [
        (
            "keyType: test.formats/none, valueType: a/b",
            "no type named test.formats/none, its keyType",
        ),
        (
            'valueType: test.formats/b, valueFormat: {type: avro, schema: \'{"type": "strin"}\'}',
            "the schema of test.formats/b is not an Avro schema: UnknownType: ",
        ),
        (
            f"valueType: {UUID.typename}, valueFormat: {{type: json}}",
            f"typename '{UUID.typename}' already belongs to another type",
        ),
    ],
)
def test_a_format_that_does_not_fit_is_reported_before_the_start(
    kafka: KafkaHarness, checkpoint: Path, topic: str, message: str
) -> None:
    """The error has the place of the topic."""
    text = module(kafka, "dead", f"topic: users, {topic}")
    with pytest.raises(BindingError, match=message):
        run(text, values("out"), checkpoint)


def test_types_of_a_registry_can_be_written(registry: str) -> None:
    """Their schema is registered once; readers with another schema get values of that schema."""
    written = make_schema_registry_type(
        "test.formats/written", registry, schema=USER, subject="written-value"
    )
    content = written.serializer().serialize({"name": "Ada"})
    read = make_schema_registry_type("test.formats/read", registry, schema=WITH_AGE)
    assert read.serializer().deserialize(content) == {"name": "Ada", "age": 7}
    assert default_types.find("test.formats/read") is read
    with pytest.raises(DefinitionError, match="can only be read"):
        read.serializer().serialize({"name": "Ada", "age": 7})
    client = SchemaRegistryClient({"url": registry})
    assert client.get_versions("written-value") == [1]


def test_an_unreachable_registry_is_no_fault_of_the_value(tmp_path: Path) -> None:
    """The function's failure policy decides, and may try again; secrets are not shown."""
    settings = {"timeout": "1", "max.retries": "0"}
    url = "http://user:planted-secret@127.0.0.1:9"
    type_ = make_schema_registry_type("test.formats/gone", url, properties=settings)
    message = Message("a/b", "c", TypedValue(type_.typename, b"\0\0\0\0\x01x"))
    with pytest.raises(FunctionError, match=r"the schema registry at .* does not answer") as gone:
        message.as_type(type_)
    with pytest.raises(DefinitionError) as other:
        make_schema_registry_type("test.formats/gone", url, schema=USER)
    with pytest.raises(ConfigurationError, match="check its url and its properties") as wrong:
        make_schema_registry_type("test.formats/wrong", url, properties={"nonsense": "1"})
    for error in (gone, other, wrong):
        assert "planted-secret" not in str(error.value)


@pytest.mark.parametrize(
    ("status", "body", "error"),
    [
        (404, b'{"error_code": 40403, "message": "no"}', ValueDecodeError),
        (404, b"<html>not here</html>", FunctionError),
        (400, b"<html>plain HTTP on a port of HTTPS</html>", FunctionError),
        (407, b"", FunctionError),
        (403, b'{"error_code": 40301, "message": "no"}', FunctionError),
    ],
)
def test_only_a_registry_says_that_there_is_no_schema(
    status: int, body: bytes, error: type[Exception]
) -> None:
    """A proxy, or a wrong URL, makes no value bad."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        url = f"http://127.0.0.1:{server.server_port}"
        name, properties = f"test.formats/told-{server.server_port}", {"max.retries": "0"}
        type_ = make_schema_registry_type(name, url, properties=properties)
        with pytest.raises(error):
            Message("a/b", "c", TypedValue(name, b"\0\0\0\0\x01x")).as_type(type_)
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def test_types_are_compared_by_their_definitions() -> None:
    """A wrong schema or descriptor is refused at once, and another one under the same name."""
    make_avro_type("test.formats/once", USER)
    make_avro_type("test.formats/once", USER)
    with pytest.raises(DefinitionError, match="already belongs to another type"):
        make_avro_type("test.formats/once", WITH_AGE)
    with pytest.raises(DefinitionError, match=r"test\.formats/x does not describe a\.B"):
        make_described_protobuf_type("test.formats/x", b"", "a.B")
    described = FileDescriptorSet()
    types_pb2.DESCRIPTOR.CopyToProto(described.file.add())
    type_ = make_described_protobuf_type("test.formats/y", described.SerializeToString(), MESSAGE)
    message = types_pb2.StringWrapper(value="Ada")
    content = type_.serializer().serialize(message)
    assert type_.serializer().deserialize(content).SerializeToString() == content
