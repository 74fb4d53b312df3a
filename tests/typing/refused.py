"""What type checkers refuse: after each mistake, the errors of mypy and pyright."""

from __future__ import annotations

from datetime import timedelta

import attrs

from statefun import Address, Context, Message, State, function, make_json_type
from statefun.windows import Tumbling, Window, WindowContext, windowed


@attrs.frozen
class Login:
    user: str


@attrs.frozen
class Order:
    item: str


class Profile(State):
    visits: int = 0
    last: Login | None = None


@function("example.typing/no-context")  # mypy: arg-type; pyright: reportArgumentType
def no_context(message: int) -> None: ...


@function("example.typing/greeter")
def greet(ctx: Context, login: Login, profile: Profile) -> None:
    profile.visits = "three"  # mypy: assignment; pyright: reportAttributeAccessIssue
    profile.visits = None  # mypy: assignment; pyright: reportAttributeAccessIssue
    profile.last = Order("tea")  # mypy: assignment; pyright: reportAttributeAccessIssue
    profile.last.user  # mypy: union-attr; pyright: reportOptionalMemberAccess
    profile.vists = 3  # mypy: attr-defined; pyright: reportAttributeAccessIssue
    ctx.send(Address("a/b", "c"))  # mypy: call-overload; pyright: reportArgumentType
    ctx.send("text")  # mypy: call-overload; pyright: reportArgumentType
    ctx.send_after(5, ctx.address, "x")  # mypy: call-overload; pyright: reportCallIssue
    ctx.send_after(timedelta(1), "x")  # mypy: call-overload; pyright: reportCallIssue
    ctx.send_at(timedelta(1), ctx.address, "x")  # mypy: call-overload; pyright: reportCallIssue
    ctx.sned(5)  # mypy: attr-defined; pyright: reportAttributeAccessIssue


Profile(visits="three")  # mypy: arg-type; pyright: reportArgumentType
Profile(vists=3)  # mypy: call-arg; pyright: reportCallIssue
Address("a/b", 5)  # mypy: call-overload; pyright: reportArgumentType
greet(5, Login("Ada"), Profile())  # mypy: arg-type; pyright: reportArgumentType
UP = {"a/c": Login}
make_json_type("a/b", Login, upgrades=UP)  # mypy: arg-type; pyright: reportArgumentType
LOGIN = make_json_type("a/b", Login)


def handle(message: Message) -> int:
    return message.as_type(LOGIN)  # mypy: return-value; pyright: reportReturnType


class Logins(Window):
    count: int = 0


@windowed("example.typing/logins", Tumbling(5))  # mypy: arg-type; pyright: reportArgumentType
def add(ctx: WindowContext, login: Login, logins: Logins) -> None:
    logins.cuont += 1  # mypy: attr-defined; pyright: reportAttributeAccessIssue


@add.on_close  # mypy: arg-type; pyright: reportArgumentType
def close(ctx: WindowContext, login: Login) -> None: ...


HOURS = Tumbling(timedelta(hours=1))


@windowed("example.typing/plain", HOURS)  # mypy: type-var; pyright: reportArgumentType
def plain(ctx: WindowContext, login: Login, profile: Profile) -> None: ...
