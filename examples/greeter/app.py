# SPDX-License-Identifier: Apache-2.0
"""Greets users, and remembers how often: ``spark-submit examples/greeter/app.py``."""

import json

import statefun
from statefun import (
    Context,
    IntType,
    KafkaEgressMessage,
    Message,
    SimpleType,
    ValueSpec,
    function,
)

USER = SimpleType.simple_immutable_type_from(
    "com.example/User",
    serialize_fn=lambda user: json.dumps(user).encode(),
    deserialize_fn=json.loads,
)


@function("com.example.fns/greeter", specs=[ValueSpec("visits", IntType)])
def greet(ctx: Context, message: Message) -> None:
    """Count the visit and greet the user who came."""
    user = message.as_type(USER)
    ctx.storage.visits = (ctx.storage.visits or 0) + 1
    ctx.send(
        KafkaEgressMessage.for_egress("com.example/greets")
        .with_topic("greetings")
        .with_key(ctx.address.id)
        .with_value(f"Hello {user['name']}, visit {ctx.storage.visits}")
        .build()
    )


if __name__ == "__main__":
    statefun.run()
