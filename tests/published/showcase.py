# SPDX-License-Identifier: Apache-2.0
"""The showcase of the playground, in our words: all that the API has, once."""

import asyncio
import sys
from datetime import timedelta

from aiohttp import web
from google.protobuf.wrappers_pb2 import StringValue as Profile

from statefun import *

functions = StatefulFunctions()
GREET = make_json_type(typename="showcase/GreetRequest")
PROFILE = make_protobuf_type(Profile)


@functions.bind("showcase/types")
def types(_context, message: Message):
    """Print a value of any type."""
    readers = [
        (message.is_bool, message.as_bool),
        (message.is_int, message.as_int),
        (message.is_long, message.as_long),
        (message.is_float, message.as_float),
        (message.is_string, message.as_string),
        (message.is_double, message.as_double),
        (lambda: message.is_type(GREET), lambda: message.as_type(GREET)),
        (lambda: message.is_type(PROFILE), lambda: message.as_type(PROFILE).value),
    ]
    found = next((read() for fits, read in readers if fits()), None)
    print(f"value: {found}", flush=True)


@functions.bind("showcase/messaging")
def messaging(context: Context, message: Message):
    """Send messages of all types, to others and to itself, now and later."""
    target = "showcase/types"
    values = [{"bool_value": True}, {"int_value": 123}, {"float_value": 0.5}, {"str_value": "hi"}]
    values += [{"double_value": 1.23}, {"long_value": 123456789}]
    values += [{"value": {"name": "Joe"}, "value_type": GREET}]
    values += [{"value": Profile(value="Joe"), "value_type": PROFILE}]
    for number, value in enumerate(values):
        context.send(message_builder(target_typename=target, target_id=str(number), **value))
    print(f"{message.value_typename()}: {message.raw_value()}", flush=True)
    me = context.address
    context.send(message_builder(target_typename=me.typename, target_id=me.id, str_value="me"))
    later = message_builder(target_typename=target, target_id="9", str_value="later")
    context.send_after(timedelta(minutes=10), later)


@functions.bind("showcase/egress")
def egress(context: Context, _message: Message):
    """Send to egresses of every kind."""
    context.send_egress(
        kafka_egress_message(typename="showcase/kafka", topic="topic", key="key", value="value")
    )
    context.send_egress(
        kinesis_egress_message(
            typename="showcase/kinesis",
            stream="stream",
            partition_key="key",
            explicit_hash_key="hash",
            value="value",
        )
    )
    context.send_egress(
        egress_message_builder(
            target_typename="showcase/own", value={"name": "Bob"}, value_type=GREET
        )
    )


@functions.bind(
    "showcase/storage",
    specs=[
        ValueSpec(name="number", type=IntType),
        ValueSpec(name="text", type=StringType, expire_after_write=timedelta(days=7)),
        ValueSpec(name="request", type=GREET),
    ],
)
def storage(context, _message):
    """Read, write and delete values."""
    print(f"number: {context.storage.number}, text: {context.storage.text}", flush=True)
    context.storage.number = 42
    context.storage.request = {"name": "Anton"}
    del context.storage.request


@functions.bind("showcase/async", specs=[ValueSpec(name="profile", type=PROFILE)])
async def asynchronous(context, _message):
    """Wait for a service, keep what it says, and reply."""
    profile = context.storage.profile
    if not profile:
        await asyncio.sleep(0.01)
        profile = Profile(value=context.address.id)
        context.storage.profile = profile
    caller: SdkAddress = context.caller
    context.send(
        message_builder(
            target_typename=caller.typename,
            target_id=caller.id,
            value=profile,
            value_type=PROFILE,
        )
    )


handler = RequestReplyHandler(functions)


async def handle(request):
    """Answer a request of the runtime."""
    reply = await handler.handle_async(await request.read())
    return web.Response(body=reply, content_type="application/octet-stream")


app = web.Application()
app.add_routes([web.post("/statefun", handle)])

if __name__ == "__main__":
    web.run_app(app, host="127.0.0.1", port=int(sys.argv[1]))
