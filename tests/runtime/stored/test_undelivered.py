# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path

from statefun.engine.address_keys import address_key
from statefun.runtime.checkpoint.folder import Folder
from statefun.runtime.checkpoint.playground_store import PlaygroundStore
from statefun.runtime.checkpoint.sent_messages import SENT_INBOX, SentMessages, put_message
from statefun.runtime.ingress.playground_inbox import PLAYGROUND_INBOX
from statefun.runtime.stored.undelivered import undelivered
from statefun.sdk.address import Address


def test_messages_that_came_from_outside_are_found(tmp_path: Path) -> None:
    """Those of ``statefun send`` and of the playground wait in the checkpoint, as those in the outbox do."""
    checkpoint = Folder.at(tmp_path)
    with closing(PlaygroundStore(checkpoint)) as store:
        for name in ("read", "posted"):
            key = address_key(Address(f"t.fns/{name}", "Ada"))
            put_message(checkpoint, key, "t/sent", b"")
            store.post(key, "t/posted", b"")
    SentMessages(checkpoint, 0).readable(0, is_busy=False)  # as a driver accepts them
    put_message(checkpoint, address_key(Address("t.fns/new", "Ada")), "t/sent", b"")
    checkpoint.child("commits").write("1", b"v1\n{}")
    inboxes = {SENT_INBOX: 1, PLAYGROUND_INBOX: 1}
    feedback = json.dumps({"batch": 0, "tick": -1, "inboxes": inboxes})
    checkpoint.child("offsets").write("1", f"v1\n{{}}\n-\n{feedback}".encode())

    assert list(undelivered(checkpoint)) == [
        ("t.fns/posted", "t/sent", 0),
        ("t.fns/new", "t/sent", 0),
        ("t.fns/posted", "t/posted", 0),
    ]
