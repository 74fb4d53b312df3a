# SPDX-License-Identifier: Apache-2.0
"""``statefun send``: sends a message to a function of an application, through the folder of its checkpoint."""

from __future__ import annotations

import argparse

from statefun.console.command_parser import CommandParser
from statefun.console.json_output import print_json
from statefun.engine.address_keys import address_key
from statefun.inspect.checkpoint_options import (
    add_checkpoint_or_program,
    checkpoint_of,
    is_in_use,
    usable,
)
from statefun.inspect.state_listing import parsed_address
from statefun.module.user_program import load_program
from statefun.runtime.checkpoint.folder import missing_checkpoint
from statefun.runtime.checkpoint.ingress_order import INGRESSES, check_format
from statefun.runtime.checkpoint.sent_messages import put_message
from statefun.runtime.stored.known_values import KnownValues, nearest
from statefun.runtime.stored.written_values import (
    ENCODINGS,
    RawValue,
    encoded_value,
    written_value,
)
from statefun.sdk.errors import ConfigurationError
from statefun.sdk.primitives import StringType
from statefun.sdk.printable import printable


def add_arguments(send: CommandParser) -> None:
    """Add the arguments of ``statefun send`` to its parser."""
    send.add_argument("address", help="<namespace>/<name>/<id>, such as com.example/card/c1")
    send.add_argument("value", help="the value: text for a value of text, JSON for others")
    send.add_argument(
        "--type",
        default=StringType.typename,
        help=f"the typename of the value: that of a primitive type, or of the program (default: {StringType.typename})",
    )
    send.add_argument(
        "--encoding",
        choices=ENCODINGS,
        help="the value is given as bytes in this form: the content of a value of bytes, or any other value as it "
        "is sent",
    )
    add_checkpoint_or_program(send)
    send.add_json()


def run_command(options: argparse.Namespace) -> None:
    """Run ``statefun send``.

    Args:
        options: the parsed options of the command line.

    Raises:
        StatefunError: if the message cannot be sent.
    """
    functions = None if options.program is None else load_program(options.program).functions
    checkpoint = checkpoint_of(options)
    with usable(checkpoint):
        check_format(checkpoint)
        if not checkpoint.has(INGRESSES):
            raise missing_checkpoint(checkpoint)
        known = KnownValues.of(checkpoint, functions)
        address = parsed_address(options.address, known)
        known.check(address.typename)
        value = _encoded(options, address.typename, known)
        put_message(checkpoint, address_key(address), options.type, value)
        is_running = is_in_use(checkpoint)
    if options.json:
        print_json({"address": str(known.present(address)), "application_runs": is_running})
        return
    rest = {
        True: "",
        False: "; no application runs with the checkpoint now: the next start delivers the message",
        None: "; if no application runs with the checkpoint now, the next start delivers the message",
    }
    print(f"sent to {printable(str(known.present(address)))}{rest[is_running]}")


def _encoded(options: argparse.Namespace, function: str, known: KnownValues) -> bytes:
    """Return the value of the message, encoded."""
    type_ = known.message_type(function, options.type)
    if type_ is None and options.encoding is None:
        hint = nearest(options.type, known.message_typenames(), "known types")
        otherwise = " Otherwise" if hint.endswith("?") else ";"
        program = "the program with --program, or " if options.program is None else ""
        raise ConfigurationError(
            f"type {options.type} is unknown{hint}{otherwise} give {program}the value's bytes with --encoding"
        )
    try:
        if options.encoding is not None:
            value = RawValue.of(options.value, options.encoding)
        else:
            value = written_value(options.value, type_)
        return encoded_value(value, type_, options.type)
    except ValueError as error:
        is_secret = options.type in known.secret_types()
        why = f"it does not fit type {options.type}, and is secret" if is_secret else error
        raise ConfigurationError(f"the value cannot be sent: {why}") from error
