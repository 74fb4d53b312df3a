# SPDX-License-Identifier: Apache-2.0
"""The greeter of the playground, in our words: two functions, state, JSON, and Kafka."""

import asyncio
import sys

from aiohttp import web

from statefun import *

functions = StatefulFunctions()
REQUEST = make_json_type(typename="example/GreetRequest")


@functions.bind(
    typename="example/person",
    specs=[ValueSpec(name="visits", type=IntType)],
)
async def person(context: Context, message: Message):
    """Count the visits, and tell the greeter."""
    visits = (context.storage.visits or 0) + 1
    context.storage.visits = visits
    request = message.as_type(REQUEST)
    request["visits"] = visits
    context.send(
        message_builder(
            target_typename="example/greeter",
            target_id=request["name"],
            value=request,
            value_type=REQUEST,
        )
    )


@functions.bind(typename="example/greeter")
async def greeter(context, message):
    """Greet."""
    request = message.as_type(REQUEST)
    await asyncio.sleep(0.01)
    context.send_egress(
        kafka_egress_message(
            typename="example/greets",
            topic="greetings",
            key=request["name"],
            value=f"Welcome {request['name']}, for the {request['visits']}. time",
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
