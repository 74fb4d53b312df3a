# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import re
import shlex

import pytest
from command_line import commands
from documentation import ROOT

from statefun.cli import main, parser

COMMANDS = commands()
WITHOUT_JSON = {
    # They have actions, which have it.
    *("dev", "dev topic", "outbox", "ingress", "dlq", "state"),
    # They print JSON anyway, a script, or nothing but what servers and programs log.
    *("schema", "completion", "serve", "dev kafka", "dev run", "run"),
    # It prints nothing.
    "dev send",
}


@pytest.mark.parametrize("name", COMMANDS)
def test_help_is_a_sentence_with_examples_that_run(name: str) -> None:
    """Each example of a command is accepted by its parser."""
    command = COMMANDS[name]
    assert command.description is not None
    assert re.fullmatch(r"[A-Z].*[^.]\.", command.description, re.DOTALL)
    heading, *examples = (command.epilog or "").splitlines()

    assert heading == "for example:"
    assert examples
    for example in examples:
        program, *words = shlex.split(_plain(example), comments=True)
        assert program == "statefun"
        assert " ".join(words).startswith(name)
        parser().parse_args(words)


def _plain(example: str) -> str:
    """Return the command of an example, without its use in a shell."""
    inside = re.search(r"\$\((.*)\)", example)
    return inside[1] if inside else re.split("[|>]", example)[0]


def test_every_command_with_results_prints_json() -> None:
    """A program can use each of them."""
    without = {name for name in COMMANDS if "--json" not in COMMANDS[name].format_help()}

    assert without == WITHOUT_JSON


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["vaildate"], "statefun: error: there is no command 'vaildate'; did you mean validate?"),
        (["dlq", "lst"], "statefun dlq: error: there is no action 'lst'; did you mean list?"),
        (
            ["dev", "topic", "liszt"],
            "statefun dev topic: error: there is no action 'liszt'; did you mean list?",
        ),
        (
            ["dlq", "list", "--sinse=12h"],
            "statefun dlq list: error: there is no option --sinse; did you mean --since?",
        ),
        (["du", "a", "b"], "statefun du: error: there is one argument too many: 'b'"),
        (
            ["completion", "csh"],
            "statefun completion: error: argument shell: there is no 'csh'; did you mean zsh?",
        ),
        (
            ["state", "set", "a/b/c", "n", "1", "--encoding=x"],
            "statefun state set: error: argument --encoding: there is no 'x'; there are base64, hex",
        ),
    ],
)
def test_wrong_words_are_answered_with_the_nearest(
    capsys: pytest.CaptureFixture[str], words: list[str], error: str
) -> None:
    """The error is that of the innermost command, and the exit code 2."""
    with pytest.raises(SystemExit) as ended:
        main(words)

    assert ended.value.code == 2
    assert capsys.readouterr().err.splitlines()[-1] == error


def test_no_command_at_all_prints_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    """A newcomer types the name of the program first."""
    assert main([]) == 2
    assert "find all problems of an application" in capsys.readouterr().err


def test_the_page_has_every_command_and_exit_code() -> None:
    """Nobody has to guess what there is."""
    page = (ROOT / "docs" / "command.md").read_text("utf-8")
    listed = re.findall(r"`statefun (\w+)`", page.partition("\n## ")[0])

    assert listed == [name for name in COMMANDS if " " not in name]
    assert re.findall(r"^\| (\d+) \|", page, re.MULTILINE) == ["0", "1", "2", "130", "141"]


def test_examples_stay_lines(capsys: pytest.CaptureFixture[str]) -> None:
    """They can be copied."""
    with pytest.raises(SystemExit):
        main(["dlq", "--help"])

    lines = capsys.readouterr().out.splitlines()
    assert lines[-2:] == ["  statefun dlq list --since 12h", "  statefun dlq replay 0/17"]
