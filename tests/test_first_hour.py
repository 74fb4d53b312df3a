# SPDX-License-Identifier: Apache-2.0
"""The first hour of a new user: a wheel in an empty environment, an application, and mistakes.

The tests use only the wheel of this checkout, and none of the pinned versions: users install the
versions that the package's own metadata asks for.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import attrs
import pytest
from class_archive import SHORT_LIVED
from confluent_kafka import Producer
from documentation import blocks
from harness import wait
from local_servers import free_port
from patience import SECONDS

from statefun.dev import EmbeddedKafka, read_records, send_record
from statefun.runtime.spark.jars import cache_folder

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.takes(minutes=1.6)]

ROOT = Path(__file__).resolve().parents[1]
RECORDS = 700
CHECKPOINT = ".statefun/app"
STOPPED = "statefun: stopped; start again to continue from the last committed batch"
NOISE = (
    "WARNING: ",
    "Using Spark's default",
    "NOTE: Picked up",
    "Setting default log",
    "To adjust",
)
PAYMENTS = """\
import asyncio
from datetime import timedelta

import statefun
from statefun import KafkaEgressMessage, IntType, ValueSpec, function, make_json_type, message_builder

PAYMENT = make_json_type("com.example.pay/Payment")
ACCOUNT = make_json_type("com.example.pay/Account")


@function("com.example.pay/account", specs=[ValueSpec("account", ACCOUNT)])
def account(ctx, message):
    payment = message.as_type(PAYMENT)
    state = ctx.storage.account or {"count": 0, "sum": 0}
    state = {"count": state["count"] + 1, "sum": state["sum"] + payment["amount"]}
    ctx.storage.account = state
    ctx.send(message_builder("com.example.pay/check", ctx.address.id, int_value=state["count"]))
    late = message_builder("com.example.pay/reminder", ctx.address.id, int_value=state["count"])
    token = f"reminder-{state['count']}"
    ctx.send_after(timedelta(minutes=10), late, cancellation_token=token)
    ctx.cancel_delayed_message(f"reminder-{state['count'] - 1}")


@function("com.example.pay/check")
async def check(ctx, message):
    await asyncio.sleep(0.001)
    value = str(message.as_int())
    ctx.send(KafkaEgressMessage("com.example.pay/out", topic="checked", key=ctx.address.id, value=value))


@function("com.example.pay/reminder")
def remind(ctx, message):
    ctx.send(KafkaEgressMessage("com.example.pay/out", topic="checked", key="late", value="late"))


if __name__ == "__main__":
    statefun.run(records_per_batch=100)
"""
PAYMENTS_MODULE = """\
kind: io.statefun.kafka.v1/ingress
spec:
  id: com.example.pay/payments
  address: ${KAFKA_ADDRESS}
  consumerGroupId: payments
  startupPosition: {type: earliest}
  topics:
    - topic: payments
      valueType: com.example.pay/Payment
      targets: [com.example.pay/account]
---
kind: io.statefun.kafka.v1/egress
spec:
  id: com.example.pay/out
  address: ${KAFKA_ADDRESS}
  deliverySemantic: {type: exactly-once, transactionTimeout: 1min}
"""


@attrs.frozen
class Machine:
    """A user's environment, and the address of a broker."""

    bin: Path
    kafka: str
    variables: Mapping[str, str] = attrs.field(factory=dict)
    """Environment variables beside the usual ones."""

    def start(self, folder: Path, *command: str) -> subprocess.Popen[str]:
        """Run a command of the environment in a folder, as a process group."""
        keep = ("HOME", "JAVA_HOME", "LANG", "TMPDIR", "XDG_CACHE_HOME", "STATEFUN_IVY_SETTINGS")
        environment = {key: os.environ[key] for key in keep if key in os.environ}
        environment["PATH"] = f"{self.bin}{os.pathsep}{os.environ['PATH']}"
        environment["KAFKA_ADDRESS"] = self.kafka
        environment["SPARK_LOCAL_IP"] = "127.0.0.1"
        environment.update(self.variables)
        environment["SPARK_SUBMIT_OPTS"] = SHORT_LIVED
        program, *arguments = command
        return subprocess.Popen(
            [str(self.bin / program), *arguments],
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def call(self, folder: Path, *command: str) -> tuple[int, list[str]]:
        """Run a command to its end; return its exit code and its output."""
        process = self.start(folder, *command)
        out, _ = process.communicate(timeout=SECONDS)
        assert "\tat " not in out, out  # a stack trace of Java
        lines = [line for line in out.splitlines() if not line.startswith(NOISE)]
        return process.returncode, [line for line in lines if " WARN " not in line]


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    """Install a wheel of the project into an empty environment."""
    folder = tmp_path_factory.mktemp("machine")
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "-q")
    subprocess.run([*pip, "wheel", "--no-deps", "-w", str(folder), str(ROOT)], check=True)
    subprocess.run([sys.executable, "-m", "venv", str(folder / "venv")], check=True)
    [wheel] = folder.glob("*.whl")
    python = folder / "venv" / "bin" / "python"
    # Python compiles what it imports; to compile all of it takes longer than the tests.
    install = (*pip[1:], "install", "--no-compile", str(wheel))
    subprocess.run([str(python), *install], check=True)
    with EmbeddedKafka() as kafka:
        for topic in ("payments", "checked", "numbers"):
            kafka.create_topic(topic, partitions=2)
        yield Machine(python.parent, kafka.bootstrap_servers)


@pytest.fixture
def greeter(tmp_path: Path) -> Path:
    """Return a folder with the README's two files."""
    (tmp_path / "app.py").write_text(blocks("README.md", "python")[0].text)
    (tmp_path / "module.yaml").write_text(blocks("README.md", "yaml")[0].text)
    return tmp_path


@pytest.mark.long(minutes=1.3)
def test_the_way_of_the_readme_leads_to_a_greeting(machine: Machine, greeter: Path) -> None:
    """A broker in one line, a record, the application; SIGTERM to spark-submit says goodbye."""
    serve, send_and_submit, read = (each.text.strip() for each in blocks("README.md", "sh")[2:5])
    send, submit = send_and_submit.splitlines()
    port = free_port()
    address = f"localhost:{port}"
    machine = attrs.evolve(machine, kafka=address)
    broker = machine.start(greeter, *serve.split(), f"--port={port}")
    try:
        for line in broker.stdout or ():
            if line.startswith(f"Kafka is at {address}"):
                break
        assert machine.call(greeter, *send.split(), f"--address={address}") == (0, [])
        application = machine.start(greeter, *submit.split())

        def greetings() -> list[str]:
            return machine.call(greeter, *read.split(), f"--address={address}")[1]

        wait(lambda: greetings() == ["ada\tHello Ada, visit 1"])
        application.terminate()
        said, _ = application.communicate(timeout=SECONDS)
    finally:
        broker.terminate()
        broker.communicate(timeout=SECONDS)
    assert said.splitlines()[-1] == STOPPED
    assert "running 1 function, with the " in said


@pytest.fixture(scope="module")
def payments(machine: Machine, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with an application that was killed in the middle, and then finished."""
    folder = tmp_path_factory.mktemp("payments")
    (folder / "app.py").write_text(PAYMENTS)
    (folder / "module.yaml").write_text(PAYMENTS_MODULE)
    producer = Producer({"bootstrap.servers": machine.kafka})
    for number in range(RECORDS):
        producer.produce("payments", json.dumps({"amount": number}), f"account-{number % 7}")
    producer.flush(30)
    application = machine.start(folder, "spark-submit", "app.py")
    wait(lambda: len(read_records(machine.kafka, "checked")) > RECORDS // 4)
    os.killpg(application.pid, signal.SIGKILL)
    application.communicate(timeout=SECONDS)
    drain = ("spark-submit", "--conf", "spark.statefun.available-now=true", "app.py")
    code, said = machine.call(folder, *drain)
    assert (code, said[-1][:36]) == (0, "statefun: timers wait for the next r")
    return folder


@pytest.mark.long(minutes=1)
def test_a_killed_application_counts_every_payment_once(machine: Machine, payments: Path) -> None:
    """Each account's payments are numbered without a gap, in order, and none twice."""
    numbers: dict[bytes | None, list[int]] = {}
    for key, value in read_records(machine.kafka, "checked"):
        numbers.setdefault(key, []).append(int(value or b""))

    assert payments.exists()
    assert len(numbers) == 7
    assert sum(map(len, numbers.values())) == RECORDS
    assert all(found == list(range(1, len(found) + 1)) for found in numbers.values())


@pytest.mark.long(minutes=1.5)
def test_a_checkpoint_is_validated_in_a_process_of_its_own(
    machine: Machine, payments: Path
) -> None:
    """No query has run that Spark's reader of state relies on; the check works nevertheless."""
    command = ("statefun", "validate", "app.py", "--checkpoint", ".statefun/app", "--connect")

    code, said = machine.call(payments, *command)

    assert (code, said[-1]) == (0, "valid (1 ingress, 1 egress, 3 functions): all is well")


@pytest.mark.long(minutes=1)
def test_a_renamed_function_is_told_of(machine: Machine, payments: Path) -> None:
    """Messages that wait for it refuse the start; without any, its state is told of and kept."""
    app = payments / "app.py"
    program = app.read_text()
    drain = ("spark-submit", "--conf", "spark.statefun.available-now=true")

    app.write_text(program.replace("pay/reminder", "pay/reminders"))
    refused = machine.call(payments, *drain, "app.py")
    (payments / "module.yaml").write_text(PAYMENTS_MODULE.replace("pay/account", "pay/accounts"))
    app.write_text(program.replace("pay/account", "pay/accounts"))
    validated = machine.call(payments, "statefun", "validate", "app.py", "--checkpoint", CHECKPOINT)
    renamed = machine.call(payments, *drain, "app.py")

    checkpoint = payments / CHECKPOINT
    assert refused[0] == 1
    first, second, third = refused[1]
    assert first == (
        f"statefun: [SF600] messages wait in checkpoint {checkpoint} for functions that are not registered:"
    )
    assert re.fullmatch(
        r"  7 timers \(due .* UTC\) for function com\.example\.pay/reminder; did you mean "
        r"com\.example\.pay/reminders\?",
        second,
    )
    assert third == (
        "  register these functions until their messages are delivered, name them in the renamed_from= of the "
        "functions that replace them, or give up the messages with spark.statefun.on-unregistered=dead-letter or "
        "skip"
    )
    left = (
        "function com.example.pay/account has state at 7 addresses, and is not registered; the state "
        "is kept for a function of that name, or one with renamed_from='com.example.pay/account'; did you "
        "mean com.example.pay/accounts?"
    )
    assert (validated[0], validated[1][0]) == (0, f"warning: {left}")
    assert renamed[0] == 0
    assert f"statefun: {left}" in renamed[1]


def test_a_second_driver_is_told_at_once(machine: Machine, payments: Path) -> None:
    """The message names the checkpoint's owner, before Spark has started, and the wait."""
    (payments / "module.yaml").write_text(PAYMENTS_MODULE)
    (payments / "app.py").write_text(PAYMENTS)
    with (payments / CHECKPOINT / "driver.lock").open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)

        code, said = machine.call(payments, "spark-submit", "app.py")

    where = f"checkpoint {payments / CHECKPOINT} is in use by process"
    assert code == 1
    assert said[0].startswith(f"statefun: {where}")
    assert said[1].startswith(f"statefun: [SF600] {where}")


def test_imported_handlers_run(machine: Machine, tmp_path: Path) -> None:
    """In a program that spark-submit has not launched, with a helper beside the handlers.

    Its home has a quote in its name.
    """
    cache = tmp_path / "Ada's cache"
    shutil.copytree(cache_folder() / "jars", cache / "statefun" / "jars")
    machine = attrs.evolve(machine, variables={"XDG_CACHE_HOME": str(cache)})
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "helper.py").write_text("NUMBER = 42\n")
    (tmp_path / "lib" / "handlers.py").write_text(
        "import helper, statefun\n\n"
        "@statefun.function('com.example/f')\n"
        "def f(ctx, message):\n"
        "    assert helper.NUMBER == 42\n"
    )
    (tmp_path / "module.yaml").write_text(
        PAYMENTS_MODULE.replace("com.example.pay/account", "com.example/f").replace(
            "topic: payments", "topic: numbers"
        )
    )
    send_record(machine.kafka, "numbers", "a", "1")
    program = "import sys; sys.path.insert(0, 'lib'); import handlers; from statefun import run; "

    code, said = machine.call(tmp_path, "python", "-c", program + "run(available_now=True)")

    assert (code, said[-1]) == (
        0,
        "statefun: done: 1 invocations in 1 batches, 0 records published",
    )


MISTAKES = [
    ("module.yaml", "consumerGroupId", "consumerGruopId", "did you mean 'consumerGroupId'?"),
    ("module.yaml", "docs/greeter", "docs/greter", "did you mean com.example.docs/greeter?"),
    ("module.yaml", "type: earliest", "type: earlyest", "earlyest"),
    ("module.yaml", "topic: users", "topic: userz", "topic userz does not exist"),
    ("module.yaml", "KAFKA_ADDRESS:-localhost:9092", "KAFKA_ADRESS", "KAFKA_ADRESS"),
    (
        "app.py",
        "(ctx: Context, name: str, state: Visits)",
        "(ctx: Context)",
        "exactly two arguments",
    ),
    ("app.py", "docs/greeter", "docs-greeter", "typename"),
    (
        "app.py",
        "count: int = 0",
        "count: int",
        "app.py:5:1: [SF200] state __statefun_validate__.Visits",
    ),
    ("app.py", "import statefun", "import statefun, nothing_there", "nothing_there"),
]


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_are_told_by_validate(
    machine: Machine, greeter: Path, mistake: tuple[str, str, str, str]
) -> None:
    """Each is an error with its place or its correction, in a separate process."""
    file, right, wrong, told = mistake
    text = (greeter / file).read_text()
    assert right in text
    (greeter / file).write_text(text.replace(right, wrong, 1))

    code, said = machine.call(greeter, "statefun", "validate", "app.py", "--connect")

    assert code == 1
    assert any(told in line for line in said), said
    assert "Traceback" not in "".join(said)


def test_a_dead_broker_is_asked_once_for_all(machine: Machine, greeter: Path) -> None:
    """Ingress and egress of a cluster that is gone are named both; a start names the ingress."""
    dead = attrs.evolve(machine, kafka=f"127.0.0.1:{free_port()}")
    module = greeter / "module.yaml"
    module.write_text(f"{module.read_text()}  deadLetterTopic: dead\n")

    validated = dead.call(greeter, "statefun", "validate", "app.py", "--connect")
    started = dead.call(
        greeter, "spark-submit", "--conf", "spark.statefun.kafka-timeout=1s", "app.py"
    )

    reason = f"no Kafka broker answered at {dead.kafka}"
    assert validated[0] == started[0] == 1
    assert [reason in line for line in validated[1]] == [True, True, False]
    assert f"[SF500] ingress com.example.docs/users: {reason}" in started[1][-1]


def test_a_missing_dead_letter_topic_refuses_the_start(machine: Machine, greeter: Path) -> None:
    """The user reads it at once, and not when the first message fails."""
    module = greeter / "module.yaml"
    text = module.read_text().replace("topic: users", "topic: numbers")
    module.write_text(f"{text}  deadLetterTopic: dead\n")

    code, said = machine.call(greeter, "spark-submit", "app.py")

    assert code == 1
    assert said[-1].startswith(
        "statefun: [SF501] egress com.example.docs/greets: topic dead does not exist"
    )


def test_a_setting_that_does_not_exist_is_told(machine: Machine, greeter: Path) -> None:
    """The message lists the existing ones."""
    conf = "spark.statefun.chekpoint=x"

    code, said = machine.call(greeter, "spark-submit", "--conf", conf, "app.py")

    assert code == 78
    assert "spark.statefun.chekpoint is not a setting; the settings are: " in said[-1]
