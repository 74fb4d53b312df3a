# SPDX-License-Identifier: Apache-2.0
"""The greeter's work in Faust: count per key, send one record per record.

Runs in a virtual environment of its own: ``faust_app.py ADDRESS IN OUT GROUP FOLDER``.
"""

import sys
from typing import Any

import aiokafka
import faust

make_consumer = aiokafka.AIOKafkaConsumer.__init__


def read_committed(consumer: Any, *topics: str, **options: Any) -> None:
    """Make a consumer that waits for the end of transactions, in which the benchmark holds records back."""
    make_consumer(consumer, *topics, **{**options, "isolation_level": "read_committed"})


aiokafka.AIOKafkaConsumer.__init__ = read_committed

address, source, sink, group, folder = sys.argv[1:]
app = faust.App(
    group,
    broker=f"kafka://{address}",
    store="memory://",
    datadir=folder,
    topic_partitions=2,
    topic_replication_factor=1,
    web_enabled=False,
    processing_guarantee="at_least_once",
)
users = app.topic(
    source, key_type=bytes, value_type=bytes, value_serializer="raw", key_serializer="raw"
)
greetings = app.topic(
    sink, key_type=bytes, value_type=bytes, value_serializer="raw", key_serializer="raw"
)
visits = app.Table("visits", default=int, key_type=bytes, value_type=int, partitions=2)


@app.agent(users)
async def greet(stream) -> None:
    """Count the visit and greet."""
    async for key, value in stream.items():
        visits[key] += 1
        text = f"Hello {value[:20]!r}, visit {visits[key]}"
        await greetings.send_soon(key=key, value=text.encode())


if __name__ == "__main__":
    app.Worker(loglevel="ERROR").execute_from_commandline()
