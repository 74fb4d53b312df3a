# SPDX-License-Identifier: Apache-2.0
"""What the documentation of the published package shows, page by page, in our words."""

import json
from datetime import timedelta

from statefun import *

functions = StatefulFunctions()


class User:
    """A value of a class of the program's own."""

    def __init__(self, name, favorite_color):
        self.name = name
        self.favorite_color = favorite_color


USER = simple_type(
    typename="com.example/User",
    serialize_fn=lambda user: json.dumps(user.__dict__).encode(),
    deserialize_fn=lambda content: User(**json.loads(content)),
)


@functions.bind(
    typename="com.example.fns/greeter", specs=[ValueSpec(name="seen_count", type=IntType)]
)
async def greet(ctx: Context, message: Message):
    """Defining a stateful function: count, and tell another function."""
    name = message.as_string()
    storage = ctx.storage
    seen = storage.seen_count or 0
    storage.seen_count = seen + 1
    ctx.send(
        message_builder(
            target_typename="com.example.fns/inbox",
            target_id=name,
            str_value=f"Hello {name}, seen {seen} times",
        )
    )


@functions.bind(
    typename="com.example.fns/counter",
    specs=[
        ValueSpec(name="seen_count", type=IntType),
        ValueSpec(name="user", type=USER),
        ValueSpec(name="called", type=IntType, expire_after_call=timedelta(minutes=30)),
        ValueSpec(name="written", type=IntType, expire_after_write=timedelta(minutes=30)),
    ],
)
def count(ctx, message):
    """State: read, write and delete values, of which some expire."""
    storage = ctx.storage
    seen = (storage.seen_count or 0) + 1
    storage.seen_count = seen
    storage.user = User(message.as_string(), f"{seen} {storage.user and storage.user.name}")
    storage.called = storage.written = seen
    if seen > 2:
        del storage.seen_count


@functions.bind(typename="com.example.fns/delayed")
async def delayed(ctx: Context, _message: Message):
    """Sending delayed messages: reply to the caller in half an hour."""
    if ctx.caller is None:
        return
    ctx.send_after(
        duration=timedelta(minutes=30),
        message=message_builder(
            target_typename=ctx.caller.typename, target_id=ctx.caller.id, str_value="later"
        ),
    )


@functions.bind(
    typename="com.example.fns/egress", specs=[ValueSpec(name="seen_count", type=IntType)]
)
async def publish(context, message):
    """Egress: records for Kafka and Kinesis."""
    if not message.is_type(USER):
        raise ValueError("not a user")
    name = message.as_type(USER).name
    context.storage.seen_count = (context.storage.seen_count or 0) + 1
    context.send_egress(
        kafka_egress_message(
            typename="com.example/greets", topic="greetings", key=name, value=f"Hello {name}"
        )
    )
    context.send_egress(
        kinesis_egress_message(
            typename="com.example/greets",
            stream="greetings",
            partition_key=name,
            value=f"Hello {name}",
        )
    )


handler = RequestReplyHandler(functions)
