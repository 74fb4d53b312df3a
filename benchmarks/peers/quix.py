# SPDX-License-Identifier: Apache-2.0
"""The greeter's work in Quix Streams: count per key, send one record per record.

Runs in a virtual environment of its own: ``quix.py ADDRESS IN OUT GROUP GUARANTEE FOLDER``.
"""

import sys

from quixstreams import Application


def main() -> None:
    """Process until killed."""
    address, source, sink, group, guarantee, folder = sys.argv[1:]
    app = Application(
        broker_address=address,
        consumer_group=group,
        auto_offset_reset="earliest",
        processing_guarantee=guarantee,
        state_dir=folder,
        loglevel="ERROR",
    )
    users = app.topic(source, key_deserializer="str", value_deserializer="bytes")
    greetings = app.topic(sink, key_serializer="str", value_serializer="str")

    def greet(value, state):
        visits = state.get("visits", 0) + 1
        state.set("visits", visits)
        return f"Hello {value[:20]!r}, visit {visits}"

    app.dataframe(users).apply(greet, stateful=True).to_topic(greetings)
    app.run()


if __name__ == "__main__":
    main()
