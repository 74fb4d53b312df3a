# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import doctest
import importlib
import pkgutil

import pytest
from written_docstrings import written_docstrings

import statefun

MODULES = sorted(
    module.name
    for module in pkgutil.walk_packages(statefun.__path__[:1], "statefun.")
    if not module.name.startswith(("statefun.protocol", "statefun.published."))
    and not module.name.endswith("__main__")
)


@pytest.mark.parametrize("name", ["statefun", *MODULES])
def test_examples_of_docstrings_run(name: str) -> None:
    """Every example in a docstring prints its documented output."""
    module = importlib.import_module(name)

    outcome = doctest.testmod(module)

    assert outcome.failed == 0
    if not str(module.__file__).endswith(".py"):  # a compiled module
        runner, parser = doctest.DocTestRunner(), doctest.DocTestParser()
        for owner, text in written_docstrings(name).items():
            runner.run(parser.get_doctest(text, vars(module).copy(), owner, name, 0))
        assert runner.failures == 0


def test_there_are_examples() -> None:
    """The modules that users write against are found, and show how."""
    finder = doctest.DocTestFinder(exclude_empty=True)

    examples = {
        name: sum(len(test.examples) for test in finder.find(importlib.import_module(name)))
        for name in MODULES
    }

    assert examples["statefun.sdk.message"] > 0
    assert sum(examples.values()) > 0
