# SPDX-License-Identifier: Apache-2.0
"""A program for Stateful Functions 3.x that does what its messages say; both packages run it.

An argument is a JSON list of commands, which :func:`obey` carries out in order.
"""

import json
from datetime import timedelta

from statefun import (
    BoolType,
    DoubleType,
    IntType,
    LongType,
    RequestReplyHandler,
    SdkAddress,
    StatefulFunctions,
    StringType,
    ValueSpec,
    egress_message_builder,
    kafka_egress_message,
    kinesis_egress_message,
    make_json_type,
    message_builder,
    simple_type,
)

COMMANDS = make_json_type("test.types/commands")
TEXT = simple_type(
    "test.types/text",
    serialize_fn=lambda text: text.encode("utf-16"),
    deserialize_fn=lambda content: content.decode("utf-16"),
)
TYPES = {
    "int": IntType,
    "long": LongType,
    "bool": BoolType,
    "double": DoubleType,
    "string": StringType,
    "json": COMMANDS,
    "text": TEXT,
}
SPECS = [
    ValueSpec("count", IntType),
    ValueSpec("name", StringType, expire_after_call=timedelta(minutes=1)),
    ValueSpec("flag", BoolType, expire_after_write=timedelta(milliseconds=1500)),
    ValueSpec("things", COMMANDS),
    ValueSpec("text", TEXT),
]
functions = StatefulFunctions()


def obey(context, message):
    """Carry out the commands of a message."""
    commands = message.as_type(COMMANDS) if message.is_type(COMMANDS) else [["show"]]
    for name, *arguments in commands or []:
        COMMAND[name](context, message, *arguments)


def send(context, _message, target, id_, kind, value):
    """Send a message."""
    context.send(built(target, id_, kind, value))


def send_after(context, _message, millis, target, id_, kind, value, token):
    """Send a delayed message."""
    context.send_after(timedelta(milliseconds=millis), built(target, id_, kind, value), token)


def cancel(context, _message, token):
    """Cancel a delayed message."""
    context.cancel_delayed_message(token)


def assign(context, _message, name, value):
    """Set a value."""
    setattr(context.storage, name, value)


def delete(context, _message, name):
    """Delete a value."""
    delattr(context.storage, name)


def read(context, _message, name):
    """Send a value."""
    tell(context, getattr(context.storage, name))


def show(context, message):
    """Send all that is known of the message."""
    caller, address, content = context.caller, context.address, message.raw_value()
    tell(
        context,
        [
            [address.namespace, address.name, address.id, address.typename],
            caller and [caller.namespace, caller.name, caller.id, caller.typename],
            caller == SdkAddress("test.fns", "plain", "Ada", "test.fns/plain"),
            message.target_typename,
            message.target_id,
            message.value_typename(),
            message.typed_value.has_value,
            None if content is None else content.decode("latin-1"),
            [is_() for is_ in (message.is_int, message.is_bool, message.is_long)],
            [is_() for is_ in (message.is_string, message.is_float, message.is_double)],
            message.is_type(tpe=TEXT),
        ],
    )


def decode(context, message, kind):
    """Send the message's value as a type."""
    tell(context, message.as_type(tpe=TYPES[kind]))


def kafka(context, _message, topic, value, key):
    """Send a record to Kafka."""
    context.send_egress(kafka_egress_message("test.io/kafka", topic, value, key=key))


def kinesis(context, _message, stream, value, key, hash_key):
    """Send a record to Kinesis."""
    record = kinesis_egress_message(
        "test.io/kinesis", stream, value, key, explicit_hash_key=hash_key
    )
    context.send_egress(record)


def egress(context, _message, kind, value):
    """Send a value to an egress."""
    record = egress_message_builder("test.io/any", value, TYPES[kind])
    context.send_egress(record)
    tell(context, [record.value_typename(), len(record.raw_value())])


def fail(_context, _message, name):
    """Raise."""
    raise {"value": ValueError, "key": KeyError}[name]("as asked")


def tell(context, value):
    """Send a value as JSON."""
    context.send(
        message_builder("test.fns/told", "x", value=json.dumps(value), value_type=COMMANDS)
    )


def built(target, id_, kind, value):
    """Return a message."""
    if kind in {"json", "text"}:
        return message_builder(target, id_, value=value, value_type=TYPES[kind])
    return message_builder(target, id_, **{f"{'str' if kind == 'string' else kind}_value": value})


COMMAND = {
    "send": send,
    "after": send_after,
    "cancel": cancel,
    "set": assign,
    "del": delete,
    "get": read,
    "show": show,
    "decode": decode,
    "kafka": kafka,
    "kinesis": kinesis,
    "egress": egress,
    "fail": fail,
}

functions.bind("test.fns/plain", SPECS)(obey)


@functions.bind("test.fns/async", SPECS)
async def obey_async(context, message):
    """Carry out the commands of a message."""
    obey(context, message)


@functions.bind("test.fns/stateless")
def obey_without_state(context, message):
    """Carry out the commands of a message."""
    obey(context, message)


handler = RequestReplyHandler(functions)
