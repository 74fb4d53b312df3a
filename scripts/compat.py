# SPDX-License-Identifier: Apache-2.0
"""Try statefun with another release of PySpark.

``make compat SPARK=4.3.0`` installs that release below ``build/compat/``, beside ``.venv`` and in front of what is in
there. It runs ``tests/runtime/spark_internals/test_details.py``, and prints a table of what statefun depends on, and
Spark does not promise: each detail, where in Spark it comes from, and whether it held. Then it runs the tests of the
contract's core, and moves a checkpoint from that release to the one in ``.venv`` and back.
"""

from __future__ import annotations

import os
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build" / "compat"
TESTS = ROOT / "tests"
DETAILS = TESTS / "runtime" / "spark_internals" / "test_details.py"
CORE = (
    "runtime/test_semantics.py",
    "runtime/dispatch/test_dispatch.py",
    "runtime/egress/test_exactly_once.py",
    "runtime/ingress/test_changed_ingresses.py",
    "runtime/preflight/test_recovery.py",
    "transforms/test_transformed_application.py",
)
MOVED = "runtime/test_moved_checkpoint.py"


def main() -> None:
    """Install, run, and print; end with an error if anything differs."""
    if len(sys.argv) != 2:  # noqa: PLR2004 - the program and its argument
        sys.exit("name a release of PySpark, as in: make compat SPARK=4.3.0")
    version = sys.argv[1]
    folder = installed(version)
    changed = details_changed(version, folder)
    # The path goes to Spark's workers, too.
    core = run_tests(CORE, PYTHONPATH=str(folder))
    moved = run_tests([MOVED], STATEFUN_OTHER_SPARK=str(folder))
    sys.exit(1 if changed or core or moved else 0)


def run_tests(files: Iterable[str], **environment: str) -> int:
    """Run tests, and show their output; return pytest's exit code, which is not 0 if one has failed."""
    command = [sys.executable, "-m", "pytest", "-q", "--numprocesses", "2", "--dist", "worksteal"]
    paths = [str(TESTS / file) for file in files]
    return subprocess.run(
        [*command, *paths], env={**os.environ, **environment}, cwd=ROOT, check=False
    ).returncode


def details_changed(version: str, folder: Path) -> bool:
    """Print which details of Spark have changed; return whether any has."""
    report = BUILD / f"{version}.xml"
    report.unlink(missing_ok=True)
    done = subprocess.run(
        [
            # The other tests' helpers import all of statefun, which a release may not let them.
            *(sys.executable, "-m", "pytest", "-q", "--noconftest", str(DETAILS)),
            *("-o", "junit_family=xunit1", f"--junitxml={report}"),
        ],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), str(TESTS)])},
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
    changed = sum("changed" in verdict for _, _, verdict in rows)
    print(f"\n{len(rows)} details, {changed} changed; {report} has the reasons", flush=True)
    return bool(changed) or not rows


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
        verdict = "held" if case.find("skipped") is None else "not there"
        if failed is not None:
            verdict = f"**changed**: {reason(failed.get('message') or '')}"
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
