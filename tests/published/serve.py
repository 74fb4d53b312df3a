# SPDX-License-Identifier: Apache-2.0
"""Answers the requests of standard input with the published package: ``serve.py PROGRAM``.

A request is its length and its bytes; so is a reply, behind a byte that tells it from the names of
the classes of an exception.
"""

import importlib
import struct
import sys

handler = importlib.import_module(sys.argv[1]).handler

stdin, stdout = sys.stdin.buffer, sys.stdout.buffer
while head := stdin.read(4):
    request = stdin.read(struct.unpack("<i", head)[0])
    try:
        mark, reply = b"=", handler.handle_sync(request)
    except Exception as error:  # noqa: BLE001 - it is the reply
        mark, reply = b"!", " ".join(kind.__name__ for kind in type(error).__mro__).encode()
    stdout.write(mark + struct.pack("<i", len(reply)) + reply)
    stdout.flush()
