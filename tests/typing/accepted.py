"""What type checkers take: the ways in which programs are written."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Annotated, Any

import attrs
from pydantic import BaseModel

from statefun import (
    Address,
    Context,
    IntType,
    KafkaEgressMessage,
    LongType,
    Message,
    Retry,
    State,
    StatefulFunctions,
    StringType,
    Type,
    ValueSpec,
    function,
    make_json_type,
    make_msgpack_type,
    message_builder,
    simple_type,
    state_value,
)
from statefun.joins import Table, joined, joined_as_of
from statefun.testing import InProcessApplication, TestContext, explore
from statefun.windows import Session, Tumbling, Window, WindowContext, windowed

functions = StatefulFunctions()


@attrs.frozen
class Login:
    user: str
    place: str | None = None


@dataclass
class Logout:
    user: str


class Order(BaseModel):
    item: str


OLD = make_json_type("example.typing/OldLogin")
LOGIN: Type[Login] = make_json_type(
    "example.typing/Login", Login, upgrades={OLD: lambda old: Login(old["user"])}
)
ORDER: Type[Order] = make_msgpack_type("example.typing/Order", Order)
TEXT: Type[str] = simple_type("example.typing/Text", str.encode, bytes.decode)


class Profile(State):
    visits: int = 0
    last: Login | None = None
    tags: list[str] = state_value(default_factory=list)
    token: str = state_value(default="", expire_after_write=timedelta(hours=1))
    small: Annotated[int, IntType] = 0


@function("example.typing/greeter")
async def greet(ctx: Context, login: Login, profile: Profile) -> None:
    profile.visits += 1
    profile.last = login
    profile.last = None
    profile.tags.append(login.user)
    del profile.token
    text: str = profile.token
    ctx.send(Address("example.typing/cart", text), profile.visits)
    ctx.send(Address("example.typing/cart", "Ada"), 5, IntType)
    ctx.send(message_builder("example.typing/cart", "Ada", value=login, value_type=LOGIN))
    ctx.send(KafkaEgressMessage("example.typing/out", topic="greetings", value="Hello"))
    ctx.send_after(timedelta(hours=1), Address("example.typing", "cart", "Ada"), "later")
    ctx.send_after(timedelta(hours=1), ctx.address, "later", cancellation_token="token")
    ctx.send_after(timedelta(hours=1), message_builder("a/b", "c", int_value=1), "token")
    ctx.cancel_delayed_message("token")


@greet.on(Logout, Order)
def leave(ctx: Context, value: Logout | Order, profile: Profile) -> None:
    if isinstance(value, Logout):
        print(value.user)
    else:
        print(value.item)


@greet.on(str)
async def command(ctx: Context, text: str) -> None:
    print(text.upper())


@functions.bind("example.typing/plain", specs=[ValueSpec("count", LongType)], on_failure="skip")
def plain(ctx: Context, message: Message) -> None:
    ctx.storage.count = (ctx.storage.count or 0) + 1
    name: str = message.as_type(StringType)
    print(name, message.as_type(LOGIN).user)


@functions.bind("example.typing/untyped")
def untyped(ctx, message):  # type: ignore[no-untyped-def]
    ctx.send(message)


def unit_test() -> None:
    context = TestContext(greet, "Ada", state=Profile(visits=2, tags=["a"]))
    context.deliver(Login("Ada"))
    value: Any = context.sent[0].value
    assert value
    plain(_context(), message_builder("a/b", "c", int_value=1))


def _context() -> Context:
    raise NotImplementedError


def scenario(app: InProcessApplication) -> None:
    app.send("example.typing/greeter", "Ada", Login("Ada"))
    app.produce("users", "Ada", b"{}")
    app.advance(hours=3)
    app.advance(timedelta(days=1))
    state: dict[str, Any] = app.state(Address("example.typing/greeter", "Ada"))
    assert state["visits"] == 1
    assert app.egress("greetings")[0].text


explore(scenario, crashes=10)


@function(
    "example.typing/retried",
    on_failure=Retry(attempts=2, backoff=timedelta(seconds=1), then="dead-letter"),
)
def retried(ctx: Context, message: Message) -> None:
    ctx.send(message)


class Logins(Window):
    count: int = 0
    users: list[str] = state_value(default_factory=list)

    def merge(self, later: Logins) -> None:
        self.count += later.count
        self.users += later.users


@windowed("example.typing/logins", Tumbling(timedelta(minutes=5), grace=timedelta(minutes=1)))
def add(ctx: WindowContext, login: Login, logins: Logins) -> None:
    logins.count += 1
    logins.users.append(login.user)


@add.on_close
def close(ctx: WindowContext, logins: Logins) -> None:
    ctx.send(Address("example.typing/report", f"{ctx.window.start:%H:%M}"), logins.count)


@add.on_update(every=timedelta(minutes=1))
def show(ctx: WindowContext, logins: Logins) -> None:
    ctx.send(Address("example.typing/now", f"{ctx.window.start:%H:%M}"), logins.count)


@add.on_late
def late(ctx: WindowContext, login: Login) -> None:
    print(login.user, ctx.lateness.total_seconds())


@windowed("example.typing/visits", Session(timedelta(minutes=30)), late="dead-letter")
def visit(ctx: WindowContext, value: Login | Logout, logins: Logins) -> None:
    if ctx.event_time is not None:
        ctx.send_at(ctx.event_time + timedelta(days=1), ctx.address, value, "token")


table = Table("example.typing/table", Order)


@table.join
def find(ctx: Context, login: Login, row: Order | None) -> None:
    print(login.user, row)


@table.on_change
def changed(ctx: Context, row: Order | None) -> None:
    ctx.send(table.address("other"), Login("Ada"))


@joined("example.typing/pairs", after=timedelta(minutes=1), late="dead-letter")
def pair(ctx: Context, login: Login, logout: Logout) -> None:
    print(login.user, logout)


@pair.on_unmatched
def unmatched(ctx: Context, value: Login | Logout) -> None:
    print(value)


@joined_as_of("example.typing/as-of", within=timedelta(minutes=1))
def as_of(ctx: Context, login: Login, logout: Logout) -> None:
    print(login.user, logout)
