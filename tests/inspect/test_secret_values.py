# SPDX-License-Identifier: Apache-2.0
"""A secret that is planted in a checkpoint is in the output of no command."""

from __future__ import annotations

import base64
import sys
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import attrs
import pytest
from harness import run
from pyspark import cloudpickle
from stored_checkpoint import StoppedClock

import statefun
from statefun import (
    Context,
    State,
    StatefulFunctions,
    StringType,
    ValueSpec,
    make_json_type,
    secret_type,
    state_value,
)
from statefun.cli import main
from statefun.module.connectors import ConnectorIngress
from statefun.module.location import Location
from statefun.module.model import Module
from statefun.module.topic_routes import TopicRoute
from statefun.module.user_program import forget_loaded
from statefun.runtime.spark.session import open_session
from statefun.sdk.address import TypeName
from statefun.sdk.types import default_types

pytestmark = pytest.mark.spark

# Workers cannot import test modules.
cloudpickle.register_pickle_by_value(  # type: ignore[no-untyped-call] # as pyspark has it
    sys.modules[__name__]
)

ACCOUNT, REMOVED = "test.secrets/account", "test.secrets/removed"
ADA = f"{ACCOUNT}/Ada"
PLANTED, CHANGED = "hunter2-4711", "swordfish-0815"
PROGRAM = """
import attrs
from statefun import Context, State, function, make_json_type, secret_type, state_value


@attrs.frozen
class Key:
    text: str


secret_type(make_json_type("test.secrets/Key", Key))


class Values(State):
    visits: int = 0
    password: str = state_value(default="", secret=True)
    key: Key | None = None


@function("test.secrets/account")
def account(context: Context, message: str | Key, values: Values) -> None:
    pass
"""


@attrs.frozen
class Key:
    """A key."""

    text: str


class Values(State):
    """The values of an account."""

    visits: int = 0
    password: str = state_value(default="", secret=True)


def functions() -> StatefulFunctions:
    """Return the functions of the application."""
    key = secret_type(make_json_type("test.secrets/Key", Key))
    made = StatefulFunctions()

    @made.bind(ACCOUNT, [ValueSpec("key", key)])
    def account(ctx: Context, _message: str, values: Values) -> None:
        values.visits += 1
        values.password = PLANTED
        ctx.storage.key = Key(PLANTED)
        ctx.send_after(timedelta(days=400), ctx.address, Key(PLANTED))

    return made


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a checkpoint with a secret in two values and in a delayed message."""
    folder = tmp_path_factory.mktemp("secrets") / "checkpoint"
    place = Location("test_secret_values.py", 1, 1)
    type_, target = TypeName.parse(StringType.typename), TypeName.parse(ACCOUNT)
    ingress = ConnectorIngress(
        TypeName("test", "commands"),
        "test.commands.v1/ingress",
        (TopicRoute("commands", type_, (target,), place),),
        place,
        "stored_checkpoint:read_commands",
        ["visit"],
    )
    module = Module(connector_ingresses=(ingress,))
    run(module, functions(), folder, clock=StoppedClock(), state_partitions=1)
    return folder


@pytest.fixture(params=["checkpoint alone", "program"])
def printed(
    request: pytest.FixtureRequest,
    checkpoint: Path,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> Iterator[Callable[..., str]]:
    """Return a function that runs a command and returns what it prints; what is secret says a program or not."""
    default_types.forget(__name__)
    assert default_types.find("test.secrets/Key") is None
    options = ["--checkpoint", str(checkpoint)]
    if request.param == "program":
        program = tmp_path / "app.py"
        program.write_text(PROGRAM)
        options += ["--program", str(program)]

    def run_command(*arguments: str, status: int = 0) -> str:
        assert main(["state", *arguments, *options]) == status
        output = capsys.readouterr()
        text = output.out + output.err
        for secret in (PLANTED, CHANGED):
            assert secret not in text
            assert secret.encode().hex() not in text
            assert base64.b64encode(secret.encode()).decode().rstrip("=") not in text
        return text

    yield run_command
    forget_loaded()


def test_no_command_prints_a_secret(
    printed: Callable[..., str], checkpoint: Path, tmp_path: Path
) -> None:
    """Values and messages are said to be secret, and so are changes by hand; who has made them is not."""
    shown = printed("show", ADA)
    assert [" ".join(line.split()) for line in shown.splitlines()[3:]] == [
        "name type bytes expires (UTC) value",
        "visits io.statefun.types/long 9 - 1",
        "password io.statefun.types/string - - (secret)",
        "key test.secrets/Key - - (secret)",
        "",
        "1 pending timer",
        "due (UTC) from type bytes token value",
        f"2027-02-05 00:00:00 {ADA} test.secrets/Key - - (secret)",
    ]
    listed = printed("ls")
    assert "visits=1, password=(secret), key=(secret)" in listed
    json = printed("show", ADA, "--json") + printed("ls", "--json")
    assert json.count('"problem": "it is secret"') == 5
    assert "io.statefun.types/string (secret)" in printed("types")
    assert '"secret": true' in printed("types", "--json")

    rows = printed("sql", "select * from `test.secrets/account`")
    assert rows.splitlines()[:2] == ["id   visits  undecoded", "Ada  1       -"]
    refused = printed("sql", "select password from `test.secrets/account`", status=1)
    assert f"; secret values have no column: key of `{ACCOUNT}`, password of" in refused

    command = ["set", ADA, "password", CHANGED]
    assert "(secret)  (secret)" in printed(*command, "--dry-run")
    assert "(secret)  (secret)" in printed(*command)
    file = tmp_path / "changes.yaml"
    file.write_text(f"- address: {ADA}\n  set: {{password: {PLANTED}, visits: 1}}\n")
    assert "(secret)  (secret)" in printed("apply", str(file))
    logged = printed("log")
    assert logged.count("(secret)  (secret)") >= 2
    assert "visits    1         1" in logged
    printed("log", "--json")
    for repair in (checkpoint / "repairs").iterdir():
        content = repair.read_bytes()
        for secret in (PLANTED, CHANGED):
            encoded = StringType.serializer().serialize(secret)
            assert base64.b64encode(encoded) not in content

    wrong = printed("set", ADA, "key", f'"{PLANTED}"', "--encoding", "hex", status=1)
    assert "the value is not hex" in wrong
    wrong = printed("set", ADA, "key", f'{{"text": ["{PLANTED}"]}}', status=1)
    assert "it does not fit type test.secrets/Key, and is secret" in wrong


def test_a_program_may_ask_for_secrets(checkpoint: Path) -> None:
    """A DataFrame has them only then, so that a new checkpoint can be made of it."""
    default_types.forget(__name__)
    spark = open_session(debug=False, state_partitions=None, kafka=False)
    frame = statefun.state(spark, checkpoint, ACCOUNT, functions=functions())
    assert frame.columns == ["id", "visits", "undecoded"]
    assert [row.undecoded for row in frame.collect()] == [None]

    whole = statefun.state(spark, checkpoint, ACCOUNT, functions=functions(), secrets=True)

    (row,) = whole.collect()
    assert (row.password, row.key.text, row.visits) == (PLANTED, PLANTED, 1)
