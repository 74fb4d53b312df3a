# SPDX-License-Identifier: Apache-2.0
"""Times the request handler of whichever package is installed: ``sdk_handler.py KIND BATCH``.

Prints the seconds of CPU per invocation; KIND is plain or async. Both packages run it unchanged.
"""

import asyncio
import sys
import time
from typing import Any

from statefun import (
    IntType,
    RequestReplyHandler,
    StatefulFunctions,
    ValueSpec,
    kafka_egress_message,
)

try:
    from statefun.protocol.request_reply_pb2 import ToFunction
except ImportError:  # the published package's place
    from statefun.request_reply_pb2 import ToFunction

INVOCATIONS = 20_000
KIND, BATCH = sys.argv[1], int(sys.argv[2])
functions = StatefulFunctions()


@functions.bind("bench/plain", [ValueSpec("visits", IntType)])
def greet(context: Any, message: Any) -> None:
    """Count, and say so."""
    visits = (context.storage.visits or 0) + 1
    context.storage.visits = visits
    text = f"Hello {message.raw_value()[:20]!r}, visit {visits}"
    context.send_egress(
        kafka_egress_message(typename="bench/out", topic="out", key=context.address.id, value=text)
    )


@functions.bind("bench/async", [ValueSpec("visits", IntType)])
async def greet_async(context: Any, message: Any) -> None:
    """Count, and say so."""
    greet(context, message)


def request() -> bytes:
    """Return a request with so many messages."""
    wire = ToFunction()
    batch = wire.invocation
    batch.target.namespace, batch.target.type, batch.target.id = "bench", KIND, "Ada"
    value = batch.state.add(state_name="visits").state_value
    value.typename, value.has_value = IntType.typename, True
    value.value = IntType.serializer().serialize(7)
    for _ in range(BATCH):
        argument = batch.invocations.add().argument
        argument.typename, argument.has_value, argument.value = "bench/bytes", True, b"x" * 100
    content: bytes = wire.SerializeToString()
    return content


async def seconds() -> float:
    """Return the CPU time of an invocation, warm."""
    handler, content = RequestReplyHandler(functions), request()
    requests = INVOCATIONS // BATCH
    began = 0.0
    for number in range(requests + requests // 5):
        if number == requests // 5:
            began = time.process_time()
        await handler.handle_async(content)
    return (time.process_time() - began) / requests / BATCH


print(asyncio.run(seconds()))
