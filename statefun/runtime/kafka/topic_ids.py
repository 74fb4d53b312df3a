# SPDX-License-Identifier: Apache-2.0
"""The ids of topics, without a leak of confluent-kafka.

``Admin_c_TopicDescription_to_py`` (``Admin.c``, as of confluent-kafka 2.16.1) never gives back its own reference to the
``Uuid`` of a description. An application looks at the ids of its topics every few seconds, so that a thousand topics
would keep hundreds of megabytes a day.
"""

from __future__ import annotations

import ctypes
import sys
from types import SimpleNamespace

from confluent_kafka import Uuid
from confluent_kafka.admin._topic import TopicDescription


def id_of_topic(description: TopicDescription) -> str:
    """Return the id of a topic, as Kafka's tools write it, and mend the count of references to its ``Uuid``.

    Args:
        description: of the topic; nothing else may refer to its ``Uuid``.
    """
    # Counted in the same way, so that the difference is 0 once confluent-kafka leaks nothing.
    sound = SimpleNamespace(topic_id=Uuid(0, 0))
    if sys.getrefcount(description.topic_id) - sys.getrefcount(sound.topic_id) == 1:
        ctypes.pythonapi.Py_DecRef(ctypes.py_object(description.topic_id))
    return str(description.topic_id)
