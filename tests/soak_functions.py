# SPDX-License-Identifier: Apache-2.0
"""Code that the functions of a soak share, in the application and elsewhere.

Each counts its messages, and chains a random token per message into a digest that it keeps. It sends
count and token to three egresses, one of each delivery semantic. At an audit, it sends its count
and digest: the topic of an exact egress has to hold a chain with exactly that end.
"""

from __future__ import annotations

import hashlib
import json

from statefun import Context, KafkaEgressMessage, LongType, SimpleType, StringType, ValueSpec

FUNCTIONS = 128
"""How many addresses of the application's function there are."""
LEDGERS = ("ledger0", "ledger1")
"""The ids of ``away/ledger``, the function elsewhere."""
SLOW = ("slow0", "slow1", "slow2", "slow3")
"""The ids of ``slow/waiter``, the coroutine function whose calls leave their micro-batches."""
WINDOWS = ("window0", "window1")
"""The ids of ``windows/entries``, which counts entries in windows of event time, and of ``windows/closed``, which gets
the counts of windows that close, and of late entries."""
ORDERED = (*LEDGERS, *SLOW)
"""The ids of functions that get numbered entries, and have to receive them in their order."""
SEMANTICS = ("exactly-once", "at-least-once", "none")
"""The names of the egresses, and the ends of their topics' names."""
TEXT = SimpleType("soak/text", str.encode, bytes.decode)
SPECS = (ValueSpec("count", LongType), ValueSpec("digest", StringType))


def chained(digest: str, token: str) -> str:
    """Return the digest of a chain that is longer by a token."""
    return hashlib.sha256(f"{digest} {token}".encode()).hexdigest()[:16]


def count(ctx: Context, prefix: str, me: str, token: str) -> None:
    """Count a message, and send count and token to the egresses."""
    ctx.storage.count = (ctx.storage.count or 0) + 1
    ctx.storage.digest = chained(ctx.storage.digest or "", token)
    value = json.dumps([me, ctx.storage.count, token])
    for semantic in SEMANTICS:
        topic = f"{prefix}{semantic}"
        ctx.send(KafkaEgressMessage(f"soak/{semantic}", topic=topic, key=me, value=value))


def audit(ctx: Context, prefix: str, me: str) -> None:
    """Send count and digest; log that."""
    ctx.logger.warning("audited")
    value = json.dumps([me, ctx.storage.count or 0, ctx.storage.digest or ""])
    ctx.send(KafkaEgressMessage("soak/audits", topic=f"{prefix}audits", key=me, value=value))
