# SPDX-License-Identifier: Apache-2.0
"""Functions of this package that do what their messages say: ``statefun serve commanded.py``.

The commands are those of ``servers.py``, which has the same function in other languages. Here are
two, ``com.example.languages/statefun`` and the coroutine ``com.example.languages/statefun-async``.
"""

from __future__ import annotations

import asyncio
import json
import os
from datetime import timedelta
from typing import Any

from statefun import (
    Context,
    KafkaEgressMessage,
    LongType,
    Message,
    StatefulFunctions,
    StringType,
    ValueSpec,
    make_json_type,
    message_builder,
)

NAMESPACE = "com.example.languages"
COMMANDS = make_json_type(f"{NAMESPACE}/commands")
OUT = f"{NAMESPACE}/out"
TOPIC = os.environ.get("RESULTS_TOPIC", "results")
PLAIN = f"{NAMESPACE}/statefun"
COROUTINE = f"{NAMESPACE}/statefun-async"

_SPECS = (
    ValueSpec("total", LongType),
    ValueSpec("note", StringType, expire_after_write=timedelta(hours=1)),
)


def commanded(plain: str = PLAIN, coroutine: str = COROUTINE) -> StatefulFunctions:
    """Return both functions, under these typenames."""
    functions = StatefulFunctions()
    functions.register(plain, _obey, _SPECS)
    functions.register(coroutine, _obey_patiently, _SPECS)
    return functions


def _obey(context: Context, message: Message) -> None:
    for command in message.as_type(COMMANDS):
        _execute(context, command)


async def _obey_patiently(context: Context, message: Message) -> None:
    for command in message.as_type(COMMANDS):
        await asyncio.sleep(0)  # other addresses' turn
        _execute(context, command)


def _execute(context: Context, command: dict[str, Any]) -> None:
    storage = context.storage
    match command["do"]:
        case "add":
            storage.total = (storage.total or 0) + command["by"]
            _report(context, name=command["name"], total=storage.total)
        case "send":
            context.send(_addressed(command))
        case "after":
            delay = timedelta(milliseconds=command["milliseconds"])
            context.send_after(delay, _addressed(command), command.get("token", ""))
        case "cancel":
            context.cancel_delayed_message(command["token"])
        case "remember":
            storage.note = command["text"]
        case "forget":
            del storage.note
        case "recall":
            _report(context, name=command["name"], note=storage.note)
        case "fail":
            raise RuntimeError(command["text"])
        case unknown:
            raise ValueError(f"unknown command: {unknown}")


def _addressed(command: dict[str, Any]) -> Message:
    commands = command["commands"]
    return message_builder(command["to"], command["id"], value=commands, value_type=COMMANDS)


def _report(context: Context, name: str, **facts: object) -> None:
    own = context.address
    record = {"name": name, "address": f"{own.typename}/{own.id}", **facts}
    context.send(KafkaEgressMessage(OUT, topic=TOPIC, key=own.id, value=json.dumps(record)))


functions = commanded()
