# SPDX-License-Identifier: Apache-2.0
"""The smallest program of the playground, in our words: it prints what it is sent."""

import sys

from aiohttp import web

from statefun import *

functions = StatefulFunctions()


@functions.bind(typename="example/hello")
async def hello(context: Context, message: Message):
    """Print the message."""
    text = message.raw_value().decode("utf-8")
    print(f"{context.address.id} was told: {text}", flush=True)


handler = RequestReplyHandler(functions)


async def handle(request):
    """Answer a request of the runtime."""
    reply = await handler.handle_async(await request.read())
    return web.Response(body=reply, content_type="application/octet-stream")


app = web.Application()
app.add_routes([web.post("/statefun", handle)])

if __name__ == "__main__":
    web.run_app(app, host="127.0.0.1", port=int(sys.argv[1]))
