# SPDX-License-Identifier: Apache-2.0
"""The cookbook has all examples, and their pages show commands that there are."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from documentation import PAGES
from submitting import EXAMPLES
from test_code_blocks import wrong_commands

READMES = sorted(EXAMPLES.glob("*/README.md"))
SHELL = re.compile(r"^```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)
OURS = ("statefun ", "spark-submit ")


def test_the_cookbook_names_every_example() -> None:
    """A new folder needs a row in the table."""
    table = PAGES["docs/cookbook.md"].read_text("utf-8")
    folders = [f"`examples/{app.parent.name}/`" for app in EXAMPLES.glob("*/app.py")]

    assert len(folders) > len(READMES) > 0
    assert [folder for folder in folders if folder not in table] == []


@pytest.mark.parametrize("readme", READMES, ids=lambda readme: readme.parent.name)
def test_commands_of_examples_exist(readme: Path) -> None:
    """Those that are not the system's."""
    blocks = SHELL.findall(readme.read_text("utf-8"))
    commands = [line for block in blocks for line in block.splitlines() if line.startswith(OURS)]

    assert len(commands) > 1
    assert wrong_commands("\n".join(commands)) == []
