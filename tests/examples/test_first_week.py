# SPDX-License-Identifier: Apache-2.0
"""The first week of a team: the payments example through kills, an outage, mistakes and an upgrade."""

from __future__ import annotations

import json
import shutil
import signal
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest
from confluent_kafka import Producer
from harness import wait
from local_servers import free_port
from submitting import EXAMPLES, submit

from statefun.cli import main
from statefun.dev import EmbeddedKafka, read_records
from statefun.sdk import functions as sdk_functions

pytestmark = [pytest.mark.broker, pytest.mark.spark]

PAYMENTS = 2_000
ACCOUNTS = [f"account-{number}" for number in range(9)]


class Scores(BaseHTTPRequestHandler):
    """The scoring service: no payment is risky."""

    def do_POST(self) -> None:
        """Answer with a risk."""
        self.rfile.read(int(self.headers["Content-Length"]))
        content = b'{"risk": 0.1}'
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        """Keep quiet."""


@contextmanager
def scoring(port: int) -> Iterator[None]:
    """Run the scoring service."""
    server = ThreadingHTTPServer(("127.0.0.1", port), Scores)
    server.daemon_threads = True
    thread = Thread(target=server.serve_forever)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class Team:
    """The example in a folder of its own, and what the team does with it."""

    def __init__(self, broker: EmbeddedKafka, folder: Path) -> None:
        self.broker = broker
        self.folder = folder
        shutil.copytree(EXAMPLES / "payments", folder, dirs_exist_ok=True)
        self.log = folder / "log"

    def run(self, *options: str) -> int:
        """Run the application on what there is; return its exit code."""
        bounded = ("--conf", "spark.statefun.available-now=true", *options)
        return submit(self.broker, str(self.folder), self.folder, *bounded).wait()

    def run_until_killed(self, alerts: int) -> None:
        """Run the application in small batches, and kill it when it has sent so many alerts more."""
        before = len(self.alerts())
        process = submit(
            self.broker,
            str(self.folder),
            self.folder,
            *("--conf", "spark.statefun.records-per-batch=100"),
        )
        while len(self.alerts()) < before + alerts:
            assert process.poll() is None, self.log.read_text()
            time.sleep(0.5)
        process.send_signal(signal.SIGKILL)
        process.wait()

    def pay(self, numbers: Sequence[int]) -> None:
        """Write payments of one cent each, account by account in turn."""
        producer = Producer({"bootstrap.servers": self.broker.bootstrap_servers})
        for number in numbers:
            payment = {"id": f"p{number}", "cents": 1, "merchant": "tea"}
            producer.produce("payments", json.dumps(payment), ACCOUNTS[number % len(ACCOUNTS)])
        producer.flush(30)

    def alerts(self) -> list[tuple[str, str]]:
        """Return the accounts and texts of all alerts."""
        found = read_records(self.broker.bootstrap_servers, "alerts")
        return [((key or b"").decode(), (value or b"").decode()) for key, value in found]

    def command(self, *arguments: str) -> int:
        """Run a ``statefun`` command in the folder.

        It may start the Spark of this process, whose workers must not have the service's address in other tests.
        """
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(self.folder)
            patch.delenv("SCORING_URL")
            return main(arguments)


@pytest.fixture
def team(
    own_broker: EmbeddedKafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Team]:
    """Return the example, with limits that make each payment an alert."""
    for topic in ("payments", "alerts", "payments-dead"):
        own_broker.create_topic(topic, partitions=2)
    port = free_port()
    monkeypatch.setenv("KAFKA_ADDRESS", own_broker.bootstrap_servers)
    monkeypatch.setenv("SCORING_URL", f"http://127.0.0.1:{port}/")
    # Tests of this process may have registered some for everybody.
    monkeypatch.setattr(sdk_functions.default_functions, "_functions", {})
    team = Team(own_broker, tmp_path / "payments")
    rows = "".join(f"{account},0\n" for account in ACCOUNTS)
    (team.folder / "limits" / "2026-11.csv").write_text(f"account,daily\n{rows}")
    with scoring(port):
        yield team


@pytest.mark.long(minutes=5.7)
def test_the_payments_example_through_a_week(
    team: Team, capsys: pytest.CaptureFixture[str]
) -> None:
    """Sums stay exact; mistakes become dead letters with a traceback; an upgrade goes on."""
    assert team.command("validate", "app.py", "--connect") == 0
    # The limits come first.
    assert team.run() == 0, team.log.read_text()
    team.pay(range(PAYMENTS))
    for _ in range(2):
        team.run_until_killed(alerts=PAYMENTS // 5)
    assert team.run() == 0, team.log.read_text()

    sums = defaultdict(list)
    for account, text in team.alerts():
        sums[account].append(int(text.partition(": ")[2].partition(" of 0 cents")[0]))
    assert sorted(sums) == ACCOUNTS
    assert sum(map(len, sums.values())) == PAYMENTS
    assert all(found == list(range(1, len(found) + 1)) for found in sums.values())

    # A limit that is no number, and a row with a field too many.
    (team.folder / "limits" / "wrong.csv").write_text(
        "account,daily\naccount-0,much\naccount-1,5,6\naccount-2,7\n"
    )
    assert team.run() == 0, team.log.read_text()
    assert team.command("validate", "app.py", "--checkpoint", str(team.folder / "checkpoint")) == 0
    capsys.readouterr()
    assert team.command("dlq", "list", "--json") == 0
    letters = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert len(letters) == 2
    assert team.command("dlq", "list", "--error", "SF301") == 0
    listed = capsys.readouterr().out
    (id_,) = [each["id"] for each in letters if each["id"] in listed]
    assert team.command("dlq", "show", id_) == 0
    shown = capsys.readouterr().out
    assert "account.limit = int(limit.daily)" in shown
    assert "invalid literal for int() with base 10: 'much'" in shown

    # A new required field cannot be read from what is stored; with a default it can.
    app = team.folder / "app.py"
    app.write_text(app.read_text().replace("limit: int = 50_000", 'limit: str = ""'))
    assert team.run() == 1
    assert "functions cannot read the state in checkpoint" in team.log.read_text()
    app.write_text(
        app.read_text().replace('limit: str = ""', 'limit: int = 50_000\n    notes: str = ""')
    )
    team.pay(range(PAYMENTS, PAYMENTS + len(ACCOUNTS)))
    assert team.run() == 0, team.log.read_text()
    wait(lambda: len(team.alerts()) == PAYMENTS + len(ACCOUNTS))
