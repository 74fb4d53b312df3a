# SPDX-License-Identifier: Apache-2.0
"""Try what statefun depends on, and Spark does not promise, with another release of PySpark.

``make compat SPARK=4.3.0`` installs that release below ``build/compat/``, beside ``.venv`` and in front of
what is in there, runs ``tests/runtime/spark_internals/test_details.py``, and prints a table: each detail,
where in Spark it comes from, and whether it held.
"""

from __future__ import annotations

import os
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build" / "compat"
TESTS = ROOT / "tests"
DETAILS = TESTS / "runtime" / "spark_internals" / "test_details.py"


def main() -> None:
    """Install, run, and print."""
    if len(sys.argv) != 2:  # noqa: PLR2004 - the program and its argument
        sys.exit("name a release of PySpark, as in: make compat SPARK=4.3.0")
    version = sys.argv[1]
    report = BUILD / f"{version}.xml"
    report.unlink(missing_ok=True)
    done = subprocess.run(
        [
            # The other tests' helpers import all of statefun, which a release may not let them.
            *(sys.executable, "-m", "pytest", "-q", "--noconftest", str(DETAILS)),
            *("-o", "junit_family=xunit1", f"--junitxml={report}"),
        ],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(installed(version)), str(TESTS)])},
        cwd=ROOT,
        check=False,
        capture_output=True,
        text=True,
    )
    if not report.exists():
        sys.exit(f"the tests did not run with PySpark {version}:\n{done.stdout}{done.stderr}")
    rows = list(table(report))
    print(f"PySpark {version}: what statefun depends on, and Spark does not promise\n")
    print("| Detail | Where it comes from | |\n|---|---|---|")
    for detail, origin, verdict in rows:
        print(f"| {detail} | {origin} | {verdict} |")
    changed = sum(verdict != "held" for _, _, verdict in rows)
    print(f"\n{len(rows) - changed} held, {changed} changed; {report} has the reasons")
    sys.exit(1 if changed or not rows else 0)


def installed(version: str) -> Path:
    """Return the folder that a release is installed in, and install it if it is not."""
    folder = BUILD / version
    if not (folder / "pyspark").exists():
        print(f"installing PySpark {version}", file=sys.stderr)
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--target", str(folder)]
        subprocess.run([*command, f"pyspark=={version}"], check=True)
    return folder


def table(report: Path) -> list[tuple[str, str, str]]:
    """Return each detail, where it comes from, and whether it held."""
    rows = []
    for case in ET.parse(report).iter("testcase"):  # noqa: S314 - pytest has just written it
        said = {each.get("name"): each.get("value") for each in case.iter("property")}
        failed = case.find("failure")
        if failed is None:
            failed = case.find("error")
        verdict = (
            "held" if failed is None else f"**changed**: {reason(failed.get('message') or '')}"
        )
        name = f"{case.get('name')}"
        rows.append((said.get("detail") or name, said.get("origin") or "", verdict))
    return rows


def reason(message: str) -> str:
    """Return the line of a message that says most, short enough for a table."""
    lines = [line.strip() for line in message.replace("\\n", "\n").splitlines() if line.strip()]
    errors = [line for line in lines if "Error:" in line or "Exception:" in line]
    return (errors[-1:] or lines[:1] or ["see the report"])[0][:300].replace("|", "/")


if __name__ == "__main__":
    main()
