# SPDX-License-Identifier: Apache-2.0
"""The output of programs that end with ``statefun.run()``, in separate processes."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
import yaml
from harness import KafkaHarness, wait
from patience import SECONDS
from soak_processes import Driver

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.takes(minutes=1)]

PROGRAM = """\
import os, sys, time
import statefun
from statefun import IntType, KafkaEgressMessage, ValueSpec


@statefun.function("test.fns/count", specs=[ValueSpec("seen", IntType)])
def count(ctx, message):
    time.sleep(0.02)
    ctx.storage.seen = (ctx.storage.seen or 0) + 1
    value = f"{ctx.address.id} {ctx.storage.seen}"
    ctx.send(KafkaEgressMessage("test/out", topic=os.environ["OUT"], key=ctx.address.id, value=value))


@statefun.function("test.fns/fail")
def fail(ctx, message):
    raise LookupError("no such thing")


if __name__ == "__main__":
    hook = sys.excepthook
    statefun.run(records_per_batch=20)
    assert sys.excepthook is hook, "what Python had before is not put back"
"""
NOISE = (
    # The JVM's and Spark's words before the program has any influence.
    "NOTE: Picked up ",
    "Picked up ",
    "Setting default log level",
    "To adjust logging level",
    "Using Spark's default log4j",
    "WARNING: ",
)
STOPPED = "statefun: stopped; start again to continue from the last committed batch"


class Program:
    """A program, its module file in the same folder, and its output."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "app.py").write_text(PROGRAM)

    def start(
        self, out: str = "", more: Mapping[str, str] = MappingProxyType({}), **conf: str
    ) -> subprocess.Popen[bytes]:
        """Run the program with settings, ``more`` being Spark's, in a process group of its own."""
        own = {f"spark.statefun.{key.replace('_', '-')}": value for key, value in conf.items()}
        options = "".join(f" --conf {key}={value}" for key, value in {**own, **more}.items())
        # Spark reads a launcher's arguments from this variable.
        arguments = os.environ["PYSPARK_SUBMIT_ARGS"].replace(" pyspark-shell", "")
        environment = {**os.environ, "OUT": out}
        # Users do not set it, and the first python3 of their PATH may be any.
        environment.pop("PYSPARK_PYTHON", None)
        environment["PYSPARK_SUBMIT_ARGS"] = f"{arguments}{options} pyspark-shell"
        with (self.folder / "stdout").open("wb") as stdout, self.log.open("wb") as stderr:
            return subprocess.Popen(
                [sys.executable, "app.py"],
                cwd=self.folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
                start_new_session=True,
            )

    @property
    def log(self) -> Path:
        """The file of its standard error."""
        return self.folder / "stderr"

    def errors(self) -> list[str]:
        """Return the standard error of the last run, without Java's lines."""
        lines = self.log.read_text().splitlines()
        return [line for line in lines if not line.startswith(NOISE)]


def samples_of(program: Program) -> dict[str, float]:
    """Return the application's metrics as Prometheus keeps them by the documented rules."""
    page = Path(__file__).parents[2] / "docs" / "operations.md"
    text = re.search(r"```yml\n(scrape_configs:.*?)```", page.read_text(), re.DOTALL)
    (ui,) = re.findall(r"Spark's UI (\S+)", program.log.read_text())
    assert text is not None
    (job,) = yaml.safe_load(text[1])["scrape_configs"]
    samples: dict[str, float] = {}

    def found() -> bool:
        with urllib.request.urlopen(ui + job["metrics_path"]) as answer:  # noqa: S310 - our own
            lines = answer.read().decode().splitlines()
        samples.clear()
        for line in lines:
            name, value = re.sub(r"\{.*\}", "", line).split()
            kept = relabelled(name, job["metric_relabel_configs"])
            if kept is not None and kept.startswith("statefun_"):
                assert kept not in samples
                samples[kept] = float(value)
        return any(name.startswith("statefun_lag") for name in samples)

    wait(found)
    return samples


def relabelled(name: str, rules: Sequence[Mapping[str, Any]]) -> str | None:
    """Apply relabelling rules to a metric, as Prometheus does: expressions take whole values."""
    labels = {"__name__": name}
    for rule in rules:
        match = re.fullmatch(rule["regex"], labels[rule["source_labels"][0]])
        if match is not None:
            if rule.get("action") == "drop":
                return None
            pattern = re.sub(r"\$\{?(\d)\}?", r"\\\1", rule.get("replacement", "$1"))
            labels[rule["target_label"]] = match.expand(pattern)
    name = labels.pop("__name__")
    shown = ",".join(f'{key}="{value}"' for key, value in labels.items())
    return f"{name}{{{shown}}}" if shown else name


@pytest.fixture
def program(tmp_path: Path) -> Program:
    """Return a program in a separate folder that has a blank in its name."""
    folder = tmp_path / "my app"
    folder.mkdir()
    return Program(folder)


def test_a_typo_in_the_module_file_is_reported_with_its_place(
    kafka: KafkaHarness, program: Program
) -> None:
    """The user reads only file, line, column, key and the correction."""
    module = kafka.module({"users": ["test.fns/count"]}).replace(
        "consumerGroupId", "consumerGruopId"
    )
    (program.folder / "module.yaml").write_text(module)

    status = program.start().wait()

    file = program.folder / "module.yaml"
    assert status == 78
    errors = program.errors()
    assert errors[0] == "statefun: [SF101] 1 problem in the module files"
    assert errors[1].startswith(f"  {file}:5:3: ")
    assert "consumerGruopId" in errors[1]
    assert len(errors) == 2


def test_a_missing_module_file_is_reported(program: Program) -> None:
    """The user reads the expected place and kind of the file."""
    status = program.start().wait()

    file = program.folder / "module.yaml"
    assert status == 78
    assert "\n".join(program.errors()) == (
        "statefun: [SF101] 1 problem in the module files\n"
        f"  {file}:1:1: there is no such file; expected a module file, YAML with the ingresses "
        "and egresses of the application"
    )


def test_the_error_that_ends_a_program_is_json_on_demand(program: Program) -> None:
    """The details of the error follow its text."""
    (program.folder / "module.yaml").write_text("kind: nothing\n")

    assert program.start(log_format="json").wait() == 78
    (line,) = program.errors()
    ended = json.loads(line)
    assert (ended["level"], ended["logger"]) == ("ERROR", "statefun")
    text, *details = ended["message"].splitlines()
    assert text.startswith("[SF101] 2 problems in the module files")
    assert details


def test_debug_shows_where_an_error_comes_from(program: Program) -> None:
    """With the debug setting, the error comes with its traceback, and with the same exit code."""
    status = program.start(debug="true").wait()

    assert status == 78
    log = program.log.read_text()
    assert "Traceback (most recent call last):\n" in log
    assert "statefun.sdk.errors.ModuleError: [SF101] 1 problem in the module files\n" in log


def test_a_failing_function_is_shown_by_the_users_own_lines(
    kafka: KafkaHarness, program: Program
) -> None:
    """The function's traceback comes first, then one line with the error and the record; another start may succeed."""
    users = kafka.topic("users")
    (program.folder / "module.yaml").write_text(kafka.module({users: ["test.fns/fail"]}))
    kafka.send(users, [("Ada", "a")])

    status = program.start(available_now="true").wait()

    assert status == 1
    errors = program.errors()
    assert errors[-1] == (
        "statefun: [SF301] function test.fns/fail failed at address test.fns/fail/Ada: "
        f"LookupError: no such thing (topic {users}, partition 0, offset 0)"
    )
    trace = errors.index("Traceback (most recent call last):")
    assert [line.strip() for line in errors[trace + 1 : -1] if "^" not in line] == [
        f'File "{program.folder / "app.py"}", line 16, in fail',
        'raise LookupError("no such thing")',
    ]
    assert all(line.startswith("statefun: ") for line in errors[:trace])


def test_functions_may_use_locks_print_and_log(kafka: KafkaHarness, program: Program) -> None:
    """A lock at the top level of a program works, and so do print, logging and ``ctx.logger``, here in JSON."""
    app = program.folder / "app.py"
    text = app.read_text().replace(
        "\n\n@statefun.function",
        "\nimport threading\nlock = threading.Lock()\n\n@statefun.function",
        1,
    )
    text = text.replace(
        "    time.sleep(0.02)",
        "    with lock:\n        print('printed', ctx.address.id)\n"
        "        logging.info('logged %s', ctx.address.id)\n"
        "        ctx.logger.info('counted', name=ctx.address.id)",
    )
    app.write_text(
        text.replace("import os", "import logging, os", 1).replace(
            "    statefun.run(", "    logging.getLogger().setLevel(logging.INFO)\n    statefun.run("
        )
    )
    users, out = kafka.topic("users"), kafka.topic("out")
    (program.folder / "module.yaml").write_text(kafka.module({users: ["test.fns/count"]}))
    kafka.send(users, [("Ada", "x"), ("Bob", "x")])

    status = program.start(out, available_now="true", log_format="json").wait()

    assert status == 0, program.errors()
    assert sorted(record.value for record in kafka.receive(out)) == ["Ada 1", "Bob 1"]
    # Workers print and log in whole lines; a log record names the address and the micro-batch.
    lines = program.errors()
    assert {line for line in lines if not line.startswith("{")} == {"printed Ada", "printed Bob"}
    logged = [json.loads(line) for line in lines if line.startswith("{")]
    of_ada = {each["message"]: each for each in logged if each.get("id") == "Ada"}
    assert of_ada["logged Ada"]["batch"] == 0
    assert of_ada["logged Ada"]["logger"] == "root"
    assert of_ada["counted"]["fields"] == {"name": "Ada"}
    assert {each["logger"] for each in logged} == {"statefun", "root", "test.fns/count"}


@pytest.mark.long(minutes=0.5)
def test_a_killed_jvm_is_reported_in_one_line(kafka: KafkaHarness, program: Program) -> None:
    """What py4j and PySpark would print of broken connections helps nobody; debug shows it."""
    users, out = kafka.topic("users"), kafka.topic("out")
    (program.folder / "module.yaml").write_text(kafka.module({users: ["test.fns/count"]}))

    ends = []
    for debug in ("false", "true"):
        before = len(kafka.receive(out))
        kafka.send(users, [("Ada", "x")] * 10)
        process = program.start(out, debug=debug)
        while len(kafka.receive(out)) == before:
            assert process.poll() is None, program.log.read_text()
            time.sleep(0.3)
        os.kill(Driver(process, program.log, 0).jvm(), signal.SIGKILL)
        process.wait(timeout=SECONDS)
        ends.append(program.errors())

    said, explained = ends
    assert [line for line in said if not line.startswith("statefun: ")] == []
    assert said[-1] == (
        "statefun: [SF900] Spark has stopped; start again to continue from the last committed batch"
    )
    assert [line for line in said if "[SF" in line] == said[-1:]
    assert "Traceback (most recent call last):" in explained


@pytest.mark.long(minutes=0.7)
def test_a_stopped_application_continues(kafka: KafkaHarness, program: Program) -> None:
    """SIGTERM, and Ctrl-C in the terminal, stop it with one line; the next start goes on."""
    users, out = kafka.topic("users", partitions=2), kafka.topic("out")
    (program.folder / "module.yaml").write_text(kafka.module({users: ["test.fns/count"]}))
    names = ["Ada", "Alan", "Grace", "Edsger"]

    ends, scraped = [], []
    for number in (signal.SIGTERM, signal.SIGINT):
        kafka.send(users, ((name, "x") for _ in range(100) for name in names))
        before = len(kafka.receive(out))
        process = program.start(out, {"spark.ui.enabled": "true", "spark.ui.port": "0"})
        while len(kafka.receive(out)) < before + 40:
            assert process.poll() is None, program.log.read_text()
            time.sleep(0.3)
        scraped.append(samples_of(program))
        if number is signal.SIGTERM:
            process.send_signal(number)
        else:
            os.killpg(process.pid, number)  # as terminals do: to Spark and its workers as well
        status = process.wait(timeout=SECONDS)
        ends.append((status, program.errors()[-1]))
        assert "Traceback" not in program.log.read_text()

    received = kafka.receive(out)
    assert ends == [(143, STOPPED), (130, STOPPED)]
    where = f'ingress="test_in",topic="{re.sub("[^a-zA-Z0-9]", "_", users)}"'
    for samples in scraped:
        assert samples["statefun_batches_total"] >= 1
        assert samples[f'statefun_lag{{{where},partition="0"}}'] >= 0
        assert {"statefun_backlog", "statefun_dead_letters_total"} <= samples.keys()
    assert (program.folder / ".statefun" / "app" / "commits").is_dir()
    counted = {name: {int(r.value.split()[1]) for r in received if r.key == name} for name in names}
    assert sum(map(len, counted.values())) >= 80 - 20  # one batch may have been published twice
    assert all(seen == set(range(1, len(seen) + 1)) for seen in counted.values())
