# SPDX-License-Identifier: Apache-2.0
"""``statefun state``, as people use it, on a stored checkpoint."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest
from confluent_kafka import Producer
from harness import KafkaHarness
from stored_checkpoint import CHECKPOINTS

from statefun.cli import main
from statefun.module.user_program import forget_loaded
from statefun.runtime.checkpoint.folder import Folder
from statefun.runtime.checkpoint.ingress_order import CHECKPOINT_FORMAT
from statefun.runtime.checkpoint.known_functions import known_functions, write_functions

STORED = str(CHECKPOINTS / f"format-{CHECKPOINT_FORMAT}")
PROGRAM = """
import statefun
from statefun import ValueSpec, function

specs = [ValueSpec("total", {type}), ValueSpec("note", statefun.StringType)]


@function("test.fns/account", specs=specs)
def account(context, message):
    pass
"""


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    """Forget the functions of a program that a test has loaded."""
    yield
    forget_loaded()


def printed(capsys: pytest.CaptureFixture[str], *arguments: str, status: int = 0) -> str:
    """Run the command, and return what it prints: its output, or its error if it has failed."""
    assert main(["state", *arguments, "--checkpoint", STORED]) == status
    output = capsys.readouterr()
    return output.err if status else output.out


def document(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    """Run the command, and return the JSON document that it prints."""
    return json.loads(printed(capsys, *arguments, "--json"))


@pytest.mark.broker
def test_show_lists_dead_letters_of_the_address(
    kafka: KafkaHarness, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also of an address of which the checkpoint knows nothing else."""
    dead = kafka.topic("dead")
    program = tmp_path / "app.py"
    program.write_text(PROGRAM.format(type="statefun.IntType"))
    module = kafka.module({kafka.topic("in"): ["test.fns/account"]}, dead_letters=dead)
    (tmp_path / "module.yaml").write_text(module)
    producer = Producer({"bootstrap.servers": kafka.address})
    for id_ in ("Ada", "Bob", "Ada"):
        headers = {"target": f"test.fns/account/{id_}", "error-code": "SF301", "time": "1000"}
        encoded = [(f"statefun-{name}", text.encode()) for name, text in headers.items()]
        producer.produce(dead, b"5", headers=list[tuple[str, str | bytes | None]](encoded))
    producer.flush(30)
    show = ("show", "--dead-letters", "--program", str(program))

    ada = printed(capsys, *show, "test.fns/account/Ada")
    bob = document(capsys, *show, "test.fns/account/Bob")

    heading, *letters = ada.partition("2 dead letters\n")[2].splitlines()
    assert (heading.split()[0], len(letters)) == ("id", 2)
    assert all("test.fns/account/Ada" in line and "SF301" in line for line in letters)
    assert (bob["values"], len(bob["dead_letters"])) == ({}, 1)
    assert "did you mean Ada?" in printed(capsys, *show, "test.fns/account/Adda", status=1)
    refused = printed(capsys, "show", "--dead-letters", "test.fns/account/Ada", status=1)
    assert "give its program with --program" in refused


def test_show_prints_values_and_timers(capsys: pytest.CaptureFixture[str]) -> None:
    """Each part has a heading and a table; parts without entries are left out."""
    shown = printed(capsys, "show", "test.fns/account/Ada").replace(" expired", "")

    assert shown.splitlines() == [
        "test.fns/account/Ada in batch 2",
        "",
        "values",
        "name   type                      bytes  expires (UTC)        value",
        "total  io.statefun.types/int     5      -                    2",
        "note   io.statefun.types/string  10     2027-01-01 00:00:00  reminded",
        "",
        "2 pending timers",
        "due (UTC)            from                  type                   bytes  token  value",
        "2026-01-01 01:00:00  test.fns/account/Ada  io.statefun.types/int  5      -      10",
        "2026-01-01 01:00:00  test.fns/account/Ada  io.statefun.types/int  5      token  100",
    ]


def test_show_prints_json(capsys: pytest.CaptureFixture[str]) -> None:
    """All names are there, whether there is something or not; times are in ISO 8601."""
    assert document(capsys, "show", "test.fns/ledger/Ada") == {
        "address": "test.fns/ledger/Ada",
        "type": "test.fns/ledger",
        "id": "Ada",
        "batch": 2,
        "values": {},
        "call": None,
        "waiting": [],
        "waiting_until": None,
        "timers": [],
        "undelivered": [
            {
                "caller": "test.fns/account/Ada",
                "typename": "io.statefun.types/int",
                "bytes": 5,
                "due": None,
                "in_event_time": False,
                "token": None,
                "attempts": 0,
                "value": 1000,
                "problem": None,
            }
        ],
    }
    note = document(capsys, "show", "test.fns/account/Ada")["values"]["note"]
    assert (note["value"], note["expires"]) == ("reminded", "2027-01-01T00:00:00Z")


def test_addresses_are_listed_and_counted(capsys: pytest.CaptureFixture[str]) -> None:
    """All of them, or those of one function, also of an older batch."""
    assert printed(capsys, "ls").splitlines() == [
        "address               waiting  values",
        "test.fns/account/Ada  -        total=2, note=reminded",
        "1 address with state in batch 2",
    ]
    assert printed(capsys, "count").splitlines() == [
        "type              addresses",
        "test.fns/account  1",
        "1 address with state in batch 2",
    ]
    assert document(capsys, "count", "test.fns/account", "--at-batch", "0") == {
        "batch": 0,
        "total": 1,
        "counts": {"test.fns/account": 1},
    }
    (listed,) = document(capsys, "ls", "test.fns/account")["addresses"]
    assert (listed["address"], listed["values"]["total"]["value"]) == ("test.fns/account/Ada", 2)
    assert printed(capsys, "ls", "test.fns/ledger") == "0 addresses with state in batch 2\n"


def test_a_program_decodes_the_values(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """A value that does not decode with the program's types is shown as bytes, with the reason."""
    program = tmp_path / "app.py"
    program.write_text(PROGRAM.replace("{type}", "statefun.StringType"))

    shown = printed(capsys, "show", "test.fns/account/Ada", "--program", str(program))

    reason = "it is stored as io.statefun.types/int, and declared as io.statefun.types/string"
    assert f"b'\\r\\x02\\x00\\x00\\x00' ({reason})" in shown


def test_a_program_of_another_application_is_refused(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """The error names the functions of both."""
    program = tmp_path / "app.py"
    text = PROGRAM.replace("{type}", "statefun.IntType")
    program.write_text(text.replace("test.fns/account", "other.fns/account"))

    refused = printed(capsys, "ls", "--program", str(program), status=1)

    # Other tests may have registered functions, too.
    assert re.search(
        r"the program's functions \(.*other\.fns/account.*\) are not those of", refused
    )
    assert "(test.fns/account, test.fns/ledger)" in refused


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (
            ("show", "test.fns/account/Adam"),
            "about test.fns/account/Adam in batch 2; did you mean Ada?",
        ),
        (
            ("show", "test.fns/acount/Ada"),
            "no function test.fns/acount; did you mean test.fns/account?",
        ),
        (("show", "account"), "an address must be <namespace>/<name>/<id>"),
        (
            ("show", "test.fns/account"),
            "not 'test.fns/account', which is a function: add the id of one of its addresses",
        ),
        (
            ("ls", "test.fns/acount"),
            "is no function test.fns/acount; did you mean test.fns/account?",
        ),
        (("count", "test.fns/acount"), "there is no function test.fns/acount; did you mean"),
        (("count", "--at-batch", "9"), "batch 9 is not committed yet"),
    ],
)
def test_bad_input_is_one_sentence(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], sentence: str
) -> None:
    """An unknown address or function names the most similar one; a batch names those that there are."""
    error = printed(capsys, *arguments, status=1)

    assert sentence in error
    assert error.count("\n") == 1


def test_the_checkpoint_of_a_program_is_the_default(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """It is the folder that the program uses without settings; without a program, one must be given."""
    program = tmp_path / "app.py"
    program.write_text(PROGRAM.replace("{type}", "statefun.IntType"))

    assert main(["state", "count", "--program", str(program)]) == 1
    assert f"there is no checkpoint at {tmp_path}/.statefun/app" in capsys.readouterr().err
    assert main(["state", "count"]) == 1
    assert "give the checkpoint with --checkpoint" in capsys.readouterr().err


@pytest.mark.spark
def test_queries_run_with_spark(capsys: pytest.CaptureFixture[str]) -> None:
    """Each function is a table; a query that fails is one sentence with the names of the tables."""
    query = "select id, total from `test.fns/account` order by total desc limit 10"

    assert printed(capsys, "sql", query).splitlines() == [
        "id   total",
        "Ada  2",
        "1 row from batch 2",
    ]
    assert document(capsys, "sql", query) == {"batch": 2, "rows": [{"id": "Ada", "total": 2}]}
    error = printed(capsys, "sql", "select 1 from `test.fns/acount`", status=1)
    assert "the query cannot be run: [TABLE_OR_VIEW_NOT_FOUND]" in error
    assert "`test.fns/account`" in error
    assert "SQLQueryContextLogger" not in error


@pytest.mark.spark
def test_sql_runs_as_a_module_of_the_package() -> None:
    """Workers do not take modules of the package, such as ``inspect``, for those of Python."""
    query = "select id, total from `test.fns/account`"
    command = [sys.executable, "-m", "statefun.cli", "state", "sql", query, "--checkpoint", STORED]

    done = subprocess.run(command, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["id   total", "Ada  2", "1 row from batch 2"]


@pytest.fixture
def renamed(tmp_path: Path) -> str:
    """Return a copy of the stored checkpoint whose function for accounts was renamed twice."""
    copied = tmp_path / "checkpoint"
    shutil.copytree(STORED, copied)
    known = known_functions(Folder.at(copied))
    assert known is not None
    names = {"test.fns/account": ["test.fns/wallet", "test.fns/purse"]}
    write_functions(Folder.at(copied), attrs.evolve(known, names=names))
    return str(copied)


@pytest.mark.parametrize("name", ["account", "wallet", "purse"])
def test_a_renamed_function_is_found_by_each_of_its_names(
    renamed: str, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    """What is printed has its present name."""
    options = ("--checkpoint", renamed)
    assert main(["state", "show", f"test.fns/{name}/Ada", *options]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert main(["state", "ls", f"test.fns/{name}", *options]) == 0
    listed = capsys.readouterr().out.splitlines()
    assert main(["state", "count", f"test.fns/{name}", *options]) == 0
    counts = capsys.readouterr().out.splitlines()
    assert main(["state", "show", f"test.fns/{name}/Adam", *options]) == 1
    refused = capsys.readouterr().err

    assert shown[0] == "test.fns/purse/Ada in batch 2"
    assert {line.split()[2] for line in shown[-2:]} == {"test.fns/purse/Ada"}
    assert listed[1].split()[0] == "test.fns/purse/Ada"
    assert counts[1].split() == ["test.fns/purse", "1"]
    assert "has nothing about test.fns/purse/Adam in batch 2; did you mean Ada?" in refused


def test_a_program_may_rename_what_no_start_has_renamed_yet(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Values that were renamed decode with their present types."""
    program = tmp_path / "app.py"
    text = PROGRAM.format(type="statefun.StringType, renamed_from='x'")
    text = text.replace('"test.fns/account",', '"test.fns/new", renamed_from="test.fns/account",')
    text = text.replace(
        "\"total\", statefun.StringType, renamed_from='x'",
        '"sum", statefun.StringType, renamed_from="total", upgrades={statefun.IntType: str}',
    )
    program.write_text(text)

    shown = document(capsys, "show", "test.fns/new/Ada", "--program", str(program))

    assert shown["address"] == "test.fns/new/Ada"
    assert shown["values"]["total"]["value"] == "2"
    assert shown["values"]["total"]["problem"] is None
