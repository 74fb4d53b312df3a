# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from statefun.engine.program import Program
from statefun.module.user_program import load_program
from statefun.runtime.dispatch.payload import Payload

UNPICKLE = (
    "import sys\n"
    "from statefun.runtime.spark_internals.closures import unpickled_closure\n"
    "program, types = unpickled_closure(open(sys.argv[1], 'rb').read())\n"
    "print(types.find('test.loaded/Sent').python_type.__name__)\n"
)


def test_types_of_a_loaded_program_reach_workers(tmp_path: Path) -> None:
    """Workers cannot import the program; its types stay while other applications of the process run."""
    app = tmp_path / "app.py"
    app.write_text(
        "import attrs, statefun\n"
        "@attrs.frozen\n"
        "class Sent:\n"
        "    n: int\n"
        "statefun.make_json_type('test.loaded/Sent', Sent)\n"
        "functions = statefun.StatefulFunctions()\n"
    )
    functions = load_program(app).functions
    content = tmp_path / "content"
    content.write_bytes(Payload.of(Program(functions, {})).content)

    printed = subprocess.run(
        [sys.executable, "-c", UNPICKLE, content],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},  # as workers have it
    ).stdout

    assert printed == "Sent\n"
