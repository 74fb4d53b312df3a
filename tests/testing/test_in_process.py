# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st
from programs import START, Program, follow, obedient

from statefun import (
    Address,
    BindingError,
    BytesType,
    Context,
    DefinitionError,
    FunctionError,
    IntType,
    KafkaEgress,
    KafkaEgressMessage,
    KafkaIngress,
    LongType,
    Message,
    ModuleError,
    State,
    StatefulFunctions,
    StringType,
    TypedValue,
    UnknownFunctionError,
    ValueSpec,
    egress_message_builder,
    function,
    make_json_type,
    state_value,
)
from statefun.testing import InProcessApplication, PublishedRecord

OUT = KafkaEgress.for_id("test/out").with_kafka_address("localhost:1")


def ingress(**options: Any) -> KafkaIngress:
    """Return an ingress of one topic."""
    builder = KafkaIngress.for_id("test/in").with_kafka_address("localhost:1")
    builder.with_consumer_group_id("g").with_topic("in", **options)
    return builder.build()


@attrs.define
class InProcess:
    """The obedient functions, in this process."""

    app: InProcessApplication
    begin: datetime
    seen: int = 0

    @classmethod
    def of(cls, seed: int) -> InProcess:
        """Begin."""
        components = (ingress(value_type=BytesType, targets=["t.fns/a"]), OUT.build())
        functions = obedient("out")
        app = InProcessApplication(functions=functions, components=components, seed=seed)
        return cls(app, app.now)

    def step(
        self, roots: list[tuple[str, Program]], now: float = START, **_options: Any
    ) -> list[list[Any]]:
        """Send programs, run until all is done, and return the new records, in order."""
        # As if nothing had run in between: what is due by now comes late.
        self.app._now = self.begin + timedelta(seconds=now - START)  # noqa: SLF001 - see above
        for id_, program in roots:
            self.app.produce("in", id_, json.dumps(program))
        self.app.drain()
        records = [record.json() for record in self.app.egress("out")]
        new, self.seen = records[self.seen :], len(records)
        return new

    def addresses(self) -> set[str]:
        """Return the addresses that have state."""
        return set(map(str, self.app.addresses()))

    def has_timers(self) -> bool:
        """Return whether a delayed message waits."""
        return self.app.next_timer is not None


@given(seed=st.integers(0, 2**32), order=st.integers(0, 2**32), roots=st.integers(1, 20))
def test_random_programs_do_what_the_model_does(seed: int, order: int, roots: int) -> None:
    """The model is the one that is beside Spark: state, egress, order, delays, expirations."""
    follow(InProcess.of(order), seed, ["x", "y"], depth=2, roots=roots, steps=2, immediate=3)


def test_one_seed_reproduces_an_order() -> None:
    """Different seeds give different orders of messages of different senders; each, always one."""
    functions = StatefulFunctions()

    @functions.bind("t/fan")
    def fan(ctx: Context, text: str) -> None:
        ctx.send(Address("t/sink", "all"), text)

    @functions.bind("t/sink")
    def sink(ctx: Context, text: str) -> None:
        ctx.send(KafkaEgressMessage("test/out", topic="out", value=text))

    def order(seed: int) -> str:
        app = InProcessApplication(functions=functions, components=[OUT.build()], seed=seed)
        for name in "abcdef":
            for n in (1, 2):
                app.send("t/fan", name, f"{name}{n}")
        app.drain()
        texts = [record.text for record in app.egress("out")]
        assert sorted(texts) == [f"{name}{n}" for name in "abcdef" for n in (1, 2)]
        assert all(texts.index(f"{name}1") < texts.index(f"{name}2") for name in "abcdef")
        return " ".join(texts)

    orders = [order(seed) for seed in range(20)]

    assert len(set(orders)) > 10
    assert orders == [order(seed) for seed in range(20)]


def test_a_year_of_timers() -> None:
    """Each comes at its time, however far apart."""
    functions = StatefulFunctions()
    times = []

    @functions.bind("t/hourly")
    def hourly(ctx: Context, count: int) -> None:
        times.append(app.now)
        ctx.send_after(timedelta(hours=1), ctx.address, count + 1)

    app = InProcessApplication(functions=functions, components=[OUT.build()])
    start = app.now
    app.send("t/hourly", "x", 0)
    app.advance(days=365)

    assert times == [start + timedelta(hours=n) for n in range(365 * 24 + 1)]
    assert app.now == start + timedelta(days=365)
    assert app.next_timer == start + timedelta(hours=365 * 24 + 1)


def test_values_expire() -> None:
    """After a call, or after a write."""
    functions = StatefulFunctions()

    class Kept(State):
        called: int = state_value(default=0, expire_after_call=timedelta(seconds=10))
        written: int = state_value(default=0, expire_after_write=timedelta(seconds=10))

    @functions.bind("t/f")
    def handle(ctx: Context, write: bool, kept: Kept) -> None:
        if write:
            kept.called += 1
            kept.written += 1

    app = InProcessApplication(functions=functions, components=[OUT.build()])
    address = Address("t/f", "x")
    app.send("t/f", "x", True)
    app.advance(seconds=9)
    assert app.state(address) == {"called": 1, "written": 1}
    app.send("t/f", "x", False)
    app.advance(seconds=9)
    assert app.state(address) == {"called": 1}
    app.advance(seconds=1)
    assert app.state(address) == {}
    assert app.addresses() == set()


def test_serializers_and_refused_messages() -> None:
    """What an egress does not take is a failure of the function, as is an unknown target."""
    functions = StatefulFunctions()
    number = make_json_type("test.in-process/Number")

    @functions.bind("t/f", on_failure="dead-letter")
    def handle(ctx: Context, message: Message) -> None:
        kind = message.as_string()
        if kind == "unknown function":
            ctx.send(Address("t/nowhere", "x"), 1)
        elif kind == "unknown egress":
            ctx.send(KafkaEgressMessage("test/other", topic="out", value="x"))
        elif kind == "large":
            ctx.send(KafkaEgressMessage("test/out", topic="out", value="x" * 2_000_000))
        else:
            ctx.send(egress_message_builder("test/out", value={"n": 7}, value_type=number))

    def serialize(value: Any) -> KafkaEgressMessage:
        return KafkaEgressMessage("test/out", topic="out", value=str(value["n"]))

    out = KafkaEgress.for_id("test/out").with_kafka_address("localhost:1")
    out.with_serializer(serialize).with_option("deadLetterTopic", "dead")
    app = InProcessApplication(functions=functions, components=[out.build()])
    for kind in ("unknown function", "unknown egress", "large", "fine"):
        app.send("t/f", kind.replace(" ", "-"), kind)
    app.drain()

    assert app.egress("out") == [PublishedRecord(b"7")]
    assert {(letter.key, letter.code) for letter in app.dead_letters()} == {
        ("unknown-function", "SF304"),
        ("unknown-egress", "SF303"),
        ("large", "SF301"),
    }


def test_a_token_in_use_is_found_after_the_commit() -> None:
    """The sender's own effects are kept; the message fails by its policy, at every start."""
    functions = StatefulFunctions()

    class Count(State):
        count: int = 0

    @functions.bind("t/f")
    def handle(ctx: Context, text: str, state: Count) -> None:
        state.count += 1
        if text == "cancel":
            ctx.cancel_delayed_message("t")
        else:
            ctx.send_after(timedelta(hours=1), Address("t/sink", "x"), text, "t")

    @functions.bind("t/sink")
    def sink(ctx: Context, text: str) -> None: ...

    app = InProcessApplication(functions=functions, components=[OUT.build()])
    for text in ("first", "second"):
        app.send("t/f", "Ada", text)
    for _ in range(2):
        with pytest.raises(FunctionError, match="cancellation token 't', which the id Ada already"):
            app.drain()
    assert app.state(Address("t/f", "Ada")) == {"count": 2}


def test_skipped_messages_are_told() -> None:
    """With the reason."""
    functions = StatefulFunctions()

    @functions.bind("t/f", on_failure="skip")
    def handle(ctx: Context, message: Message) -> None:
        raise ValueError("no")

    app = InProcessApplication(functions=functions, components=[OUT.build()])
    app.send("t/f", "x", 1)
    app.drain()

    assert app.skipped == ["function t/f failed at address t/f/x: ValueError: no (message)"]


def test_a_topic_in_json_has_values_of_the_programs_own_type() -> None:
    """Which reads JSON; with transforms, too."""
    functions = StatefulFunctions()
    ages = make_json_type("test.in-process/ages", dict[str, int])
    got: list[object] = []

    @functions.bind("t/f")
    def handle(ctx: Context, message: Message) -> None:
        got.append((ctx.address.id, message.as_type(ages)))

    options: dict[str, Any] = {
        "value_type": ages,
        "targets": ["t/f"],
        "valueFormat": {"type": "json"},
        "transforms": [{"type": "Cast$Value", "spec": "Ada:int32"}],
    }
    app = InProcessApplication(functions=functions, components=[ingress(**options)])
    app.produce("in", "x", b'{"Ada": "36"}')
    app.drain()

    assert got == [("x", {"Ada": 36})]


def test_two_ingresses_read_one_topic_with_different_transforms() -> None:
    """Each record comes by both routes, and each route changes its key, value and topic in its own way."""
    functions = StatefulFunctions()
    people = make_json_type("test.in-process/people", dict[str, Any])
    received: list[object] = []

    @functions.bind("t/by-name", specs=[ValueSpec("count", IntType)])
    @functions.bind("t/by-city", specs=[ValueSpec("count", IntType)])
    def handle(ctx: Context, message: Message) -> None:
        ctx.storage.count = (ctx.storage.count or 0) + 1
        topic = "" if ctx.record is None else ctx.record.topic
        received.append((str(ctx.address), message.as_type(people), topic, ctx.storage.count))

    def reader(field: str) -> KafkaIngress:
        builder = KafkaIngress.for_id(f"test/by-{field}").with_kafka_address("localhost:1")
        transforms = [
            {"type": "ValueToKey", "fields": field},
            {"type": "ExtractField$Key", "field": field},
            {"type": "ReplaceField$Value", "exclude": field},
            {"type": "RegexRouter", "regex": "(.*)", "replacement": f"$1-by-{field}"},
        ]
        return (
            builder.with_consumer_group_id(field)
            .with_topic(
                "people",
                value_type=people,
                targets=[f"t/by-{field}"],
                valueFormat={"type": "json"},
                transforms=transforms,
            )
            .build()
        )

    app = InProcessApplication(functions=functions, components=[reader("name"), reader("city")])
    for name in ("Ada", "Mary"):
        app.produce("people", "x", json.dumps({"name": name, "city": "London", "age": 36}))
    app.drain()

    by_city, by_name = "people-by-city", "people-by-name"
    assert sorted(received, key=repr) == [
        ("t/by-city/London", {"name": "Ada", "age": 36}, by_city, 1),
        ("t/by-city/London", {"name": "Mary", "age": 36}, by_city, 2),
        ("t/by-name/Ada", {"city": "London", "age": 36}, by_name, 1),
        ("t/by-name/Mary", {"city": "London", "age": 36}, by_name, 1),
    ]


@pytest.mark.parametrize("seed", range(20))
def test_rejected_records_alone_are_a_micro_batch(seed: int) -> None:
    """They wait for no address."""
    functions = StatefulFunctions()
    functions.register("t/f", lambda ctx, message: None)
    app = InProcessApplication(
        functions=functions,
        components=[ingress(value_type=StringType, targets=["t/f"], failurePolicy="skip")],
        seed=seed,
    )
    app.produce("in", None, "1")
    app.drain()

    assert len(app.skipped) == 1


def test_programs_and_module_files(tmp_path: Path) -> None:
    """A program is loaded as validate does it, with its own registry; module.yaml is beside it."""
    function("test.in-process/of-another-program")(lambda ctx, message: None)
    (tmp_path / "app.py").write_text(
        "import statefun\n"
        "functions = statefun.StatefulFunctions()\n"
        "@functions.bind('test.loaded/f')\n"
        "def handle(ctx, message):\n"
        "    ctx.send(statefun.KafkaEgressMessage('test/out', topic='out', value=b'got'))\n"
        "if __name__ == '__main__':\n"
        "    statefun.run()\n"
    )
    (tmp_path / "module.yaml").write_text(
        "kind: io.statefun.kafka.v1/ingress\n"
        "spec:\n"
        "  {id: test/in, address: 'kafka:9092', consumerGroupId: g, topics: [\n"
        "    {topic: in, valueType: test.loaded/Any, targets: [test.loaded/f]}]}\n"
        "---\n"
        "kind: io.statefun.kafka.v1/egress\n"
        "spec: {id: test/out, address: 'kafka:9092'}\n"
    )

    app = InProcessApplication(tmp_path / "app.py")
    app.produce("in", "Ada", b"\xff")
    assert app.egress("out") == []
    app.drain()

    assert app.egress("out") == [PublishedRecord(b"got")]


def _raises(app: InProcessApplication, error: type[Exception], call: Callable[[], object]) -> str:
    with pytest.raises(error) as raised:
        call()
    return str(raised.value)


def test_mistakes_of_tests_are_told() -> None:
    """A topic that nobody reads, a function that there is not, time that goes back."""
    functions = StatefulFunctions()

    @functions.bind("t/f")
    def handle(ctx: Context, number: int) -> None: ...

    components = (ingress(value_type=LongType, targets=["t/f"]), OUT.build())
    app = InProcessApplication(functions=functions, components=components)

    assert "no ingress reads topic users (the ingresses read: in)" in _raises(
        app, DefinitionError, lambda: app.produce("users", "k", "v")
    )
    assert "did you mean t/f" in _raises(app, UnknownFunctionError, lambda: app.send("t/g", "x", 1))
    assert "needs an id" in _raises(app, DefinitionError, lambda: app.send("t/f", "", 1))
    assert "time cannot go back" in _raises(app, DefinitionError, lambda: app.advance(hours=-1))
    assert "deadLetterTopic" in _raises(app, DefinitionError, app.dead_letters)
    assert "no handler of t/f takes io.statefun.types/string" in _raises(
        app,
        BindingError,
        lambda: InProcessApplication(
            functions=functions, components=[ingress(value_type=StringType, targets=["t/f"])]
        ),
    )


WRONG_CALLS: list[tuple[Callable[[Any], object], str]] = [
    (lambda app: app.produce("in", "k", "v", timestamp=5), "with a time zone, .*, not 5"),
    (
        lambda app: app.produce("in", "k", "v", timestamp=datetime(2026, 1, 1)),  # noqa: DTZ001 - the mistake
        "the timestamp of a record must be a datetime with a time zone",
    ),
    (
        lambda app: app.produce(
            "in", "k", "v", timestamp=datetime(1969, 1, 1, tzinfo=timezone.utc)
        ),
        "must not be before 1970",
    ),
    (lambda app: app.produce("in", 5, "v"), "the key of a record must be .* not 5"),
    (lambda app: app.produce("in", "k", {"a": 1}), "the value of a record must be .* not {'a': 1}"),
    (lambda app: app.produce("in", "k", "v", headers=[]), "must be a mapping of names to values"),
    (lambda app: app.produce("in", "k", "v", headers={"a": 1}), "the header a of a record"),
    (lambda app: app.produce("in", "k", "v", headers={1: "a"}), "must be a string, not 1"),
    (lambda app: app.produce("in", "k", "v", partition="x"), "a number from 0 to .* not 'x'"),
    (lambda app: app.produce("in", "k", "v", partition=-1), "a number from 0 to .* not -1"),
    (lambda app: app.advance(), r"such as advance\(hours=3\), not nothing"),
    (lambda app: app.advance(5), r"such as advance\(hours=3\), not 5"),
    (lambda app: app.advance(timedelta(hours=1), hours=1), r"advance\(hours=3\), not both"),
    (lambda app: app.advance(hour=1), r"advance\(hours=3\), not hour=1"),
    (lambda app: app.state("t/f/Ada"), r'such as Address\("t/f", "Ada"\), not .t/f/Ada'),
    (lambda app: app.state("t/f"), r'such as Address\("t/f", "some id"\), not .t/f'),
    (lambda app: app.state(None), "the argument of state must be an Address, .* not None"),
    (
        lambda app: app.send(Address("t/f", "Ada"), "Ada", 5),
        "send takes the typename of a function",
    ),
]


@pytest.mark.parametrize(("call", "text"), WRONG_CALLS)
def test_wrong_arguments_are_told_by_the_call_that_has_them(
    call: Callable[[Any], object], text: str
) -> None:
    """The application goes on as if the call had not been made."""
    functions = StatefulFunctions()
    got: list[str] = []

    @functions.bind("t/f")
    def handle(ctx: Context, value: str) -> None:
        got.append(value)

    reading = ingress(value_type=StringType, targets=["t/f"])
    app = InProcessApplication(functions=functions, components=[reading])

    with pytest.raises(DefinitionError, match=text):
        call(app)
    app.produce("in", "k", StringType.serializer().serialize("good"))
    app.drain()

    assert got == ["good"]
    assert app.now == datetime(2026, 1, 1, tzinfo=timezone.utc)


def test_components_in_python_need_no_module_file_of_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder may hold another application's module file; without components, it is read."""
    (tmp_path / "module.yaml").write_text(
        "kind: io.statefun.kafka.v1/egress\nspec: {id: t/other}\n"
    )
    monkeypatch.chdir(tmp_path)
    functions = StatefulFunctions()
    functions.register("t/f", lambda ctx, message: None)

    app = InProcessApplication(functions=functions, components=[OUT.build()])

    assert [str(each.id) for each in app.module.egresses] == ["test/out"]
    with pytest.raises(ModuleError, match="address"):
        InProcessApplication(functions=functions)


def test_each_ingress_reads_its_topics() -> None:
    """Two that read the same topic are two sources."""
    functions = StatefulFunctions()
    got: list[str] = []

    @functions.bind("t/*")
    def handle(ctx: Context, value: bytes) -> None:
        got.append(ctx.address.name)

    def reading(name: str) -> KafkaIngress:
        builder = KafkaIngress.for_id(f"test/{name}").with_kafka_address("localhost:1")
        builder.with_consumer_group_id("g")
        return builder.with_topic("in", value_type=BytesType, targets=[f"t/{name}"]).build()

    app = InProcessApplication(functions=functions, components=[reading("a"), reading("b")])
    app.produce("in", "x", "1")
    app.drain()

    assert sorted(got) == ["a", "b"]


def test_coroutines_keep_their_loop() -> None:
    """As in a worker: clients that are bound to it live on; tests may be coroutines, too."""
    functions = StatefulFunctions()
    loops: list[asyncio.AbstractEventLoop] = []

    @functions.bind("t/f")
    async def handle(ctx: Context, number: int) -> None:
        loops.append(asyncio.get_running_loop())

    app = InProcessApplication(functions=functions, components=[OUT.build()])
    for number in (1, 2):
        app.send("t/f", "x", number)
        app.drain()

    async def test() -> None:
        app.send("t/f", "x", 3)
        app.drain()

    asyncio.run(test())
    assert len(loops) == 3
    assert loops[0] is loops[1]
    assert not loops[0].is_closed()


def test_programs_do_not_see_each_other(tmp_path: Path) -> None:
    """One that is loaded forgets the one before; an imported one is taken as it is."""
    text = (
        "import attrs\n"
        "from statefun import Context, function, make_json_type\n"
        "@attrs.frozen\n"
        "class Order:\n"
        "    NAME: int\n"
        "make_json_type('test.loaded/Order', Order)\n"
        "@function('test.loaded/NAME', on_failure='POLICY')\n"
        "def handle(ctx: Context, order: Order): pass\n"
    )
    for name, policy in (("one", "dead-letter"), ("two", "skip")):
        file = tmp_path / f"{name}_program.py"
        file.write_text(text.replace("NAME", name).replace("POLICY", policy))
    dead = KafkaEgress.for_id("test/out").with_kafka_address("localhost:1")
    dead.with_option("deadLetterTopic", "dead")

    one = InProcessApplication(tmp_path / "one_program.py", components=[dead.build()])
    two = InProcessApplication(tmp_path / "two_program.py", components=[OUT.build()])

    two.send("test.loaded/two", "x", 1)
    two.drain()
    assert len(two.skipped) == 1
    one.send("test.loaded/one", "x", 1)
    with pytest.raises(UnknownFunctionError):
        one.send("test.loaded/two", "x", 1)
    one.drain()
    assert len(one.dead_letters()) == 1


def test_a_value_of_any_type_can_be_sent() -> None:
    """As it is encoded."""
    functions = StatefulFunctions()
    got: list[bytes] = []

    @functions.bind("t/f")
    def handle(ctx: Context, value: bytes) -> None:
        got.append(value)

    app = InProcessApplication(functions=functions, components=[OUT.build()])
    app.send("t/f", "x", TypedValue("any/Thing", b"\x00\xff"))
    app.drain()

    assert got == [b"\x00\xff"]


def test_classes_of_one_name_are_refused() -> None:
    """As an application refuses them."""
    functions = StatefulFunctions()
    for name in ("one", "other"):
        item = attrs.make_class("Item", {name: attrs.field(type=str)}, frozen=True)
        item.__qualname__ = f"{name}.Item"

        def take(ctx: Context, value: Any) -> None: ...

        take.__annotations__["value"] = item
        functions.register(f"t.fns/{name}", take)

    route = ingress(value_type=BytesType, targets=["t.fns/other"])
    with pytest.raises(
        BindingError,
        match=r'give one of them another typename: make_json_type\("t.fns/Item", .*other.Item',
    ):
        InProcessApplication(functions=functions, components=(route,))


def test_timers_of_one_moment_are_no_work_for_each_other() -> None:
    """A thousand at as many milliseconds, and each comes at its own; nothing is left over."""
    functions = StatefulFunctions()
    times: list[tuple[int, datetime]] = []

    @functions.bind("t/begin")
    def begin(ctx: Context, count: int) -> None:
        for number in range(count):
            ctx.send_after(timedelta(milliseconds=number), Address("t/sink", "x"), number)

    @functions.bind("t/sink")
    def sink(ctx: Context, number: int) -> None:
        times.append((number, app.now))

    app = InProcessApplication(functions=functions, components=[OUT.build()])
    start = app.now
    app.send("t/begin", "x", 300)
    app.advance(seconds=1)

    assert times == [(number, start + timedelta(milliseconds=number)) for number in range(300)]
    assert app.next_timer is None


def test_a_timer_is_never_early() -> None:
    """Not by a part of a millisecond either: the clock shows whole ones."""
    functions = StatefulFunctions()
    got: list[str] = []

    @functions.bind("t/f")
    def handle(ctx: Context, text: str) -> None:
        got.append(text)
        if text == "begin":
            ctx.send_after(timedelta(milliseconds=1), ctx.address, "later")

    app = InProcessApplication(functions=functions, components=[OUT.build()])
    app.advance(microseconds=999)
    app.send("t/f", "x", "begin")
    app.drain()
    begun = app.now
    app.advance(microseconds=1)
    due = app.next_timer

    assert due is None or due - begun >= timedelta(milliseconds=1)
    assert got == (["begin"] if due else ["begin", "later"])


def test_the_next_timer_is_known_after_a_cancellation() -> None:
    """One that nobody can cancel any more does not count; of several, the first."""
    functions = StatefulFunctions()

    @functions.bind("t/f")
    def handle(ctx: Context, text: str) -> None:
        if text == "cancel":
            ctx.cancel_delayed_message("a")
        elif text == "begin":
            for hours, token in ((1, "a"), (2, "b"), (3, "")):
                ctx.send_after(timedelta(hours=hours), ctx.address, "later", token)

    app = InProcessApplication(functions=functions, components=[OUT.build()])
    start = app.now
    seen = []
    for text in ("begin", "cancel"):
        app.send("t/f", "x", text)
        app.drain()
        seen.append(app.next_timer)
    app.advance(hours=2)
    seen.append(app.next_timer)
    app.advance(hours=1)

    assert seen == [start + timedelta(hours=hours) for hours in (1, 2, 3)]
    assert app.next_timer is None


@pytest.mark.parametrize(("baggage", "seen"), [(b"a=b", b"a=b"), (b"a=\xff", None)])
def test_the_trace_of_a_record_goes_on(baggage: bytes, seen: bytes | None) -> None:
    """From function to function and to the egress, as far as it is text."""
    functions = StatefulFunctions()

    @functions.bind("t/f")
    def handle(ctx: Context, value: bytes) -> None:
        ctx.send(Address("t/g", "x"), "on")

    @functions.bind("t/g")
    def publish(ctx: Context, text: str) -> None:
        ctx.send(KafkaEgressMessage("test/out", topic="out", value=text))

    route = ingress(value_type=BytesType, targets=["t/f"])
    app = InProcessApplication(functions=functions, components=[route, OUT.build()])
    app.produce("in", "x", "1")
    app.drain()
    app.produce("in", "x", "1", headers={"baggage": baggage})
    app.drain()

    assert [record.headers.get("baggage") for record in app.egress("out")] == [None, seen]
