# SPDX-License-Identifier: Apache-2.0
"""``statefun send``: messages that it refuses; ``tests/runtime/test_sending.py`` has those that arrive."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import attrs
import pytest
from stored_checkpoint import CHECKPOINTS

from statefun import IntType, StringType
from statefun.cli import main
from statefun.engine.address_keys import address_key
from statefun.module.user_program import forget_loaded
from statefun.runtime.checkpoint.folder import Folder
from statefun.runtime.checkpoint.inbox import AcceptedMessage
from statefun.runtime.checkpoint.ingress_order import CHECKPOINT_FORMAT
from statefun.runtime.checkpoint.known_functions import known_functions, write_functions
from statefun.runtime.checkpoint.lock import checkpoint_lock
from statefun.runtime.checkpoint.sent_messages import SentMessages
from statefun.sdk.address import Address

ADA = "test.fns/account/Ada"
PROGRAM = """
import statefun
from statefun import make_json_type

PAYMENT = make_json_type("test.fns/Payment", dict[str, int])


@statefun.function("test.fns/account")
def account(context, message):
    pass
"""


TYPED = """
import dataclasses

import statefun


@dataclasses.dataclass
class Bill:
    cents: int


@dataclasses.dataclass
class Owner:
    city: str = ""


class Account(statefun.State):
    owner: Owner | None = None


@statefun.function("test.fns/account")
def pay(context: statefun.Context, bill: Bill, account: Account) -> None:
    pass
"""


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    """Forget the functions of a program that a test has loaded."""
    yield
    forget_loaded()


@pytest.fixture
def stored(tmp_path: Path) -> Path:
    """Return a copy of the stored checkpoint, whose application is stopped."""
    return Path(shutil.copytree(CHECKPOINTS / f"format-{CHECKPOINT_FORMAT}", tmp_path / "stored"))


def test_messages_are_encoded_by_their_types(
    stored: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Text if no type is given; a program has further types."""
    program = tmp_path / "app.py"
    program.write_text(PROGRAM)
    send = ["send", "--checkpoint", str(stored), ADA]

    assert main([*send, "hello"]) == 0
    assert capsys.readouterr().out == (
        f"sent to {ADA}; no application runs with the checkpoint now: the next start delivers the message\n"
    )
    with checkpoint_lock(Folder.at(stored)):
        assert main([*send, "5", "--type", IntType.typename]) == 0
    assert capsys.readouterr().out == f"sent to {ADA}\n"
    payment = ["--type", "test.fns/Payment", "--program", str(program)]
    assert main([*send, '{"euros": 5}', *payment]) == 0
    assert main([*send, "AAEC", "--type", "other/Type", "--encoding", "base64"]) == 0

    assert main(["state", "show", ADA, "--checkpoint", str(stored)]) == 0
    _, _, shown = capsys.readouterr().out.partition("4 messages on the way\n")
    assert '{"euros": 5}' in shown
    assert [line.split()[-1] for line in shown.splitlines()] == [
        *("value", "hello", "5", "5}", r"b'\x00\x01\x02'"),
    ]
    inbox, key = SentMessages(Folder.at(stored), 0), address_key(Address("test.fns/account", "Ada"))
    assert inbox.messages(0, inbox.readable(0, is_busy=False)) == [
        AcceptedMessage(1, key, StringType.typename, StringType.serializer().serialize("hello")),
        AcceptedMessage(2, key, IntType.typename, IntType.serializer().serialize(5)),
        AcceptedMessage(3, key, "test.fns/Payment", b'{"euros":5}'),
        AcceptedMessage(4, key, "other/Type", b"\0\1\2"),
    ]


def test_the_classes_of_handlers_and_states_are_types_of_a_program(
    stored: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Messages of such classes are sent and shown, also with a typename of another program for a class of the name."""
    program = tmp_path / "app.py"
    program.write_text(TYPED)
    folders = ["--checkpoint", str(stored), "--program", str(program)]
    send = ["send", *folders, ADA]

    for value, typename in [
        ('{"cents": 5}', "io.statefun.python/Bill"),
        ('{"cents": 6}', "com.other/Bill"),
        ('{"city": "Ulm"}', "io.statefun.python/Owner"),
    ]:
        assert main([*send, value, "--type", typename]) == 0
    assert main([*send, '{"euros": 5}', "--type", "com.other/Bill"]) == 1
    assert "the value cannot be sent: it is no value of type" in capsys.readouterr().err
    assert main([*send, "{}", "--type", "io.statefun.python/Bil"]) == 1
    assert capsys.readouterr().err == (
        "statefun: [SF100] type io.statefun.python/Bil is unknown; did you mean io.statefun.python/Bill? Otherwise "
        "give the value's bytes with --encoding\n"
    )

    assert main(["state", "show", ADA, *folders]) == 0
    _, _, shown = capsys.readouterr().out.partition("3 messages on the way\n")
    values = ['{"cents": 5}', '{"cents": 6}', '{"city": "Ulm"}']
    assert [
        line[-len(value) :] for line, value in zip(shown.splitlines()[1:], values, strict=True)
    ] == values


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["test.fns/acount/Ada", "hello"], "there is no function test.fns/acount; did you mean"),
        ([ADA, "x", "--type", IntType.typename], "the value cannot be sent: 'x' is not JSON"),
        ([ADA, "x", "--type", "io.statefun.types/integer"], "did you mean io.statefun.types/int"),
        ([ADA, "x", "--type", "a/b"], "give the program with --program"),
        ([ADA, "x", "--encoding", "hex"], "the value is not hex"),
    ],
)
def test_messages_that_nobody_could_handle_are_refused(
    stored: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], reason: str
) -> None:
    """In one sentence."""
    assert main(["send", "--checkpoint", str(stored), *arguments]) == 1
    assert reason in capsys.readouterr().err
    assert not (stored / "sent").exists()


def test_a_message_needs_a_checkpoint(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A folder with another name would wait for ever."""
    assert main(["send", "--checkpoint", str(tmp_path), ADA, "hello"]) == 1
    assert f"there is no checkpoint at {tmp_path}" in capsys.readouterr().err
    assert main(["send", ADA, "hello"]) == 1
    assert "give the checkpoint with --checkpoint" in capsys.readouterr().err


def test_a_renamed_function_is_shown_by_its_present_name(
    stored: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whichever of its names the command has; the message goes to the address with the stored name."""
    known = known_functions(Folder.at(stored))
    assert known is not None
    names = {"test.fns/account": ["test.fns/wallet"]}
    write_functions(Folder.at(stored), attrs.evolve(known, names=names))

    for name in ("account", "wallet"):
        assert main(["send", "--checkpoint", str(stored), f"test.fns/{name}/Ada", "hello"]) == 0

    said = capsys.readouterr().out.splitlines()
    assert [line.partition(";")[0] for line in said] == ["sent to test.fns/wallet/Ada"] * 2
    inbox, key = SentMessages(Folder.at(stored), 0), address_key(Address("test.fns/account", "Ada"))
    messages = inbox.messages(0, inbox.readable(0, is_busy=False))
    assert [message.target for message in messages] == [key, key]
