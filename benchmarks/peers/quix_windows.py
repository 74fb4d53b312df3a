# SPDX-License-Identifier: Apache-2.0
"""Tumbling windows of five minutes in Quix Streams: count per key, send one record per window.

Runs in a virtual environment of its own: ``quix_windows.py ADDRESS IN OUT GROUP FOLDER``.
"""

import sys
from datetime import timedelta

from quixstreams import Application


def main() -> None:
    """Process until killed."""
    address, source, sink, group, folder = sys.argv[1:]
    app = Application(
        broker_address=address,
        consumer_group=group,
        auto_offset_reset="earliest",
        processing_guarantee="exactly-once",
        state_dir=folder,
        loglevel="ERROR",
    )
    clicks = app.topic(source, key_deserializer="str", value_deserializer="bytes")
    counts = app.topic(sink, key_serializer="str", value_serializer="json")
    windows = app.dataframe(clicks).tumbling_window(timedelta(minutes=5), grace_ms=0).count()
    windows.final(closing_strategy="partition").to_topic(counts)
    app.run()


if __name__ == "__main__":
    main()
