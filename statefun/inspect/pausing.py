# SPDX-License-Identifier: Apache-2.0
"""Pauses and resumes parts of an application, and gives it orders, through the files of its checkpoint."""

from __future__ import annotations

import argparse
import shlex

from statefun.console.json_output import print_json
from statefun.inspect.checkpoint_options import add_checkpoint, is_in_use, usable
from statefun.runtime.checkpoint.folder import Folder, missing_checkpoint
from statefun.runtime.checkpoint.ingress_order import INGRESSES, check_format
from statefun.runtime.checkpoint.orders import Order, write_order
from statefun.runtime.checkpoint.pauses import Parts, Pausable, Paused, change_paused, read_paused
from statefun.sdk.errors import ConfigurationError
from statefun.sdk.nearest_names import suggestion


def add_order(command: argparse.ArgumentParser) -> None:
    """Add the arguments of a command that gives an order to an application."""
    add_checkpoint(command)
    command.add_argument("--json", action="store_true", help="print the result as JSON")


def add_part(command: argparse.ArgumentParser) -> None:
    """Add the arguments of a command that pauses or resumes a part of an application."""
    add_order(command)
    part = command.add_mutually_exclusive_group()
    part.add_argument("--ingress", metavar="ID", help="an ingress, such as com.example/users")
    part.add_argument("--egress", metavar="ID", help="an egress, such as com.example/greets")


def change_part(options: argparse.Namespace, *, is_paused: bool) -> None:
    """Pause or resume the part that the options name, or else the application, and print what has changed.

    Raises:
        StatefunError: if there is no such part, or the checkpoint cannot be used.
    """
    checkpoint = Folder.at(options.checkpoint)
    with usable(checkpoint):
        parts, paused = parts_of(checkpoint)
        if is_paused:
            paused = Paused()
        # A part that the application has no longer can be resumed, as it would be paused if it came back.
        part, name = Pausable.APPLICATION, ""
        if options.ingress is not None:
            part = Pausable.INGRESS
            name = _known(options.ingress, "ingress", parts.ingresses | paused.ingresses)
        elif options.egress is not None:
            part = Pausable.EGRESS
            name = _known(options.egress, "egress", parts.egresses | paused.egresses)
        has_changed = change_paused(checkpoint, part, name, is_paused=is_paused)
        is_running = is_in_use(checkpoint)
    if options.json:
        result = {"part": part.value, "id": name, "paused": is_paused}
        print_json({**result, "changed": has_changed, "running": is_running})
        return
    what = f"{part.value} {name}" if name else "the application"
    if not has_changed:
        print(f"{what} is paused already" if is_paused else f"{what} is not paused")
    else:
        verb = "paused" if is_paused else "resumed"
        since = {
            True: "",
            False: ", from its next start on",
            None: ", if the application runs, or from its next start on",
        }
        print(f"{what} is {verb}{since[is_running]}")


def give_order(options: argparse.Namespace, order: Order, text: str) -> None:
    """Give an order to the application that runs with the checkpoint that the options name.

    Args:
        options: the parsed options of the command line.
        order: the order.
        text: the line to print: what the application does now.

    Raises:
        StatefunError: if no application runs with the checkpoint, or if a pause keeps it from draining.
    """
    checkpoint = Folder.at(options.checkpoint)
    with usable(checkpoint):
        parts, paused = parts_of(checkpoint)
        is_running = is_in_use(checkpoint)
        if is_running is False:
            raise ConfigurationError(f"no application runs with checkpoint {checkpoint.shown}")
        # The application has nothing for an egress that is paused, but that it has no longer.
        paused = Paused(paused.application, egresses=paused.egresses & parts.egresses)
        if order is Order.DRAIN and paused.parts():
            raise ConfigurationError(
                f"{', '.join(paused.parts())}: paused, so that not everything can be delivered and published; "
                f"first run: statefun resume {shlex.quote(checkpoint.shown)}"
                + "".join(f" --egress {name}" for name in sorted(paused.egresses)[:1])
                * (not paused.application)
            )
        write_order(checkpoint, order)
    if options.json:
        print_json({"order": order.value})
    else:
        print(text if is_running else f"if the application runs, which no lock shows: {text}")


def parts_of(checkpoint: Folder) -> tuple[Parts, Paused]:
    """Return the parts of a checkpoint's application, and which of them are paused.

    Raises:
        StatefunError: if there is no checkpoint, or no application has run with it.
    """
    check_format(checkpoint)
    if not checkpoint.has(INGRESSES):
        raise missing_checkpoint(checkpoint)
    found = read_paused(checkpoint)
    if found is None:
        raise ConfigurationError(
            f"checkpoint {checkpoint.shown} does not name its ingresses and egresses yet: start the application"
        )
    return found


def _known(name: str, kind: str, names: frozenset[str]) -> str:
    if name in names:
        return name
    hint = suggestion(name, names) or f"there are: {', '.join(sorted(names)) or 'none'}"
    raise ConfigurationError(f"the application has no {kind} {name}; {hint}")
