# SPDX-License-Identifier: Apache-2.0
"""The admin API without a running query: who may use it, limits of requests, and what it refuses."""

from __future__ import annotations

import logging
import socket
from collections.abc import Iterator
from contextlib import ExitStack, closing
from http.client import HTTPConnection
from pathlib import Path

import pytest
import yaml
from admin_api import MODULE, TOKEN, Served, served
from patience import SECONDS
from prometheus_client.parser import text_string_to_metric_families

from statefun.module.loader import load_module_files
from statefun.protocol.runtime_pb2 import Outcome
from statefun.runtime import request_stream
from statefun.runtime.admin.admin_tokens import VARIABLE, Tokens
from statefun.runtime.checkpoint.commit_log import CommitLog
from statefun.runtime.checkpoint.known_functions import KnownFunctions, write_functions
from statefun.runtime.checkpoint.pauses import read_paused
from statefun.runtime.checkpoint.sent_messages import SentMessages
from statefun.runtime.control import RunEnding
from statefun.runtime.reporting.figures import EgressFigures, PartitionFigures
from statefun.runtime.settings import Settings
from statefun.sdk.errors import ConfigurationError, PlatformError


@pytest.fixture
def api(tmp_path: Path) -> Iterator[Served]:
    """Serve the API for this machine."""
    with served(tmp_path) as found:
        yield found


def test_the_parts_of_an_application_are_shown(api: Served) -> None:
    """Also before its query runs; states have the words of Kafka Connect."""
    assert api.ask("GET", "/")[1]["checkpoint"].endswith("/checkpoint")
    assert api.ask("GET", "/status")[1]["state"] == "STARTING"
    ((status, (ingress,)), (_, (egress,))) = (api.ask("GET", f"/{each}") for each in PLURALS)
    assert status == 200
    assert (ingress["name"], ingress["type"], ingress["state"]) == ("test/in", "source", "RUNNING")
    assert (egress["name"], egress["type"], egress["state"]) == ("test/out", "sink", "RUNNING")
    assert [each["name"] for each in api.ask("GET", "/functions")[1]] == ["test/greeter"]
    assert api.ask("GET", "/functions/test/greeter")[1]["invocations"] == 0


PLURALS = ("ingresses", "egresses")


def test_an_ingress_that_waits_for_tables_says_so(api: Served) -> None:
    """A pause has priority: after it, the ingress still waits."""
    api.figures.waits = {"test/in": ["test/rows"]}

    waiting = api.ask("GET", "/ingresses/test/in")[1]
    api.ask("PUT", "/ingresses/test/in/pause")
    paused = api.ask("GET", "/ingresses/test/in")[1]

    assert (waiting["state"], waiting["waits_for"]) == ("WAITING", ["test/rows"])
    assert (paused["state"], paused["waits_for"]) == ("PAUSED", ["test/rows"])


def test_parts_are_paused_and_resumed(api: Served) -> None:
    """What is paused already is a success, and is on the disk."""
    for path in ("/ingresses/test/in", "/egresses/test/out", ""):
        assert api.ask("PUT", f"{path}/pause")[0] == 202
        assert api.ask("PUT", f"{path}/pause")[0] == 200
    _, paused = read_paused(api.settings.checkpoint) or (None, None)
    assert paused == api.control.pauses.paused
    assert paused is not None
    assert paused.parts() == ["the application", "ingress test/in", "egress test/out"]
    assert api.ask("GET", "/status")[1]["paused"]["application"]
    assert api.ask("PUT", "/resume")[0] == 202
    assert api.ask("PUT", "/resume")[0] == 200
    assert api.ask("GET", "/ingresses/test/in")[1]["state"] == "PAUSED"


def test_a_look_reads_the_checkpoint_once(api: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """What ``statefun top`` asks for at each look: only the status needs files."""
    readings = []
    newest = CommitLog.newest

    def counted(self: CommitLog) -> int:
        readings.append(self)
        return newest(self)

    monkeypatch.setattr(CommitLog, "newest", counted)
    for path in ("/status", "/functions", "/ingresses", "/egresses"):
        assert api.ask("GET", path)[0] == 200
    assert len(readings) == 1


def test_unknown_names_are_answered_with_the_nearest(api: Served) -> None:
    """For each kind of name, and for paths."""
    for path, hint in (
        ("/functions/test/greter", "no function test/greter; did you mean test/greeter?"),
        ("/ingresses/test/inn", "no ingress test/inn; did you mean test/in?"),
        ("/egresses/test/oat", "no egress test/oat; did you mean test/out?"),
        ("/egress", "did you mean GET /egresses?"),
    ):
        status, content = api.ask("GET", path)
        assert (status, content["error_code"]) == (404, 404)
        assert hint in content["message"]
    assert api.ask("PUT", "/egresses/test/oat/pause")[0] == 404
    assert api.ask("PUT", "/loggers/statefum", b'{"level": "DEBUG"}')[0] == 404
    assert api.ask("POST", "/messages/test/greter/Ada", b"Ada")[0] == 404
    status, content = api.ask("DELETE", "/functions")
    assert (status, content["message"]) == (405, "/functions takes GET")


def test_a_message_goes_through_the_inbox_of_statefun_send(api: Served) -> None:
    """Its type is in its content type; a type that the function does not take is refused."""
    vendor = "application/vnd.io.statefun.types/int"
    assert api.ask("POST", "/messages/test/greeter/Ada%2FL", "Grüße".encode())[0] == 202
    assert api.ask("POST", "/messages/test/greeter/Ada", b"\x08\x02", Content_Type=vendor)[0] == 415

    inbox = SentMessages(api.settings.checkpoint, 0)
    ((_, target, typename, _),) = inbox.messages(0, inbox.readable(0, is_busy=False))
    assert (target, typename) == (b"Ada/L\0test/greeter", "io.statefun.types/string")


def test_a_message_to_a_renamed_function_has_the_name_of_its_state(tmp_path: Path) -> None:
    """The answer has its present name."""
    known = KnownFunctions(frozenset({"test/welcome"}))
    checkpoint = Settings.resolve({}, None, checkpoint=tmp_path / "checkpoint").checkpoint
    write_functions(checkpoint, known)
    with served(tmp_path, "test/welcome") as api:
        assert api.ask("POST", "/messages/test/greeter/Ada", b"Ada")[0] == 202
        inbox = SentMessages(api.settings.checkpoint, 0)
        ((_, target, _, _),) = inbox.messages(0, inbox.readable(0, is_busy=False))
    assert target == b"Ada\0test/welcome"


def test_an_application_that_has_stopped_answers_nothing_more(tmp_path: Path) -> None:
    """Not even to a client whose connection is still open: what it orders would be lost."""
    with served(tmp_path) as api:
        client = HTTPConnection("127.0.0.1", api.port, timeout=SECONDS)
        client.request("GET", "/status")
        client.getresponse().read()
    with closing(client):
        client.request("POST", "/restart")
        assert client.getresponse().status == 503
    assert api.control.ending is None


def test_a_restart_is_ordered(api: Served) -> None:
    """As ``statefun restart`` does."""
    assert api.ask("POST", "/restart")[0] == 202
    assert api.control.ending is RunEnding.RESTART


def test_levels_of_loggers_are_set(api: Served) -> None:
    """Only to levels that exist."""
    logger = logging.getLogger("test.admin.levels")
    assert api.ask("PUT", "/loggers/test.admin.levels", b'{"level": "DEBUG"}')[0] == 200
    assert logger.level == logging.DEBUG
    assert api.ask("GET", "/loggers")[1]["test.admin.levels"] == {"level": "DEBUG"}
    for body in (b"", b"[]", b'{"level": "LOUD"}', b"\xff", b"[" * 100_000):
        assert api.ask("PUT", "/loggers/test.admin.levels", body)[0] == 400


def test_health_is_that_of_commits(api: Served) -> None:
    """Without a query, the application is alive, and not ready."""
    assert api.ask("GET", "/health/live")[0] == 200
    status, content = api.ask("GET", "/health/ready")
    assert (status, content["reason"]) == (503, "the query does not run yet")
    api.figures.is_up = True
    assert api.ask("GET", "/health/ready")[0] == 200
    offsets = Path(api.settings.checkpoint.location) / "offsets"
    offsets.mkdir(parents=True)
    (offsets / "0").write_text("v1\n{}\n")
    status, content = api.ask("GET", "/health/live?patience=0s")
    assert status == 503
    assert "micro-batch 0 is not committed yet" in content["reason"]
    assert api.ask("GET", "/health/live?patience=soon")[0] == 400


def test_other_machines_need_a_token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An API that other machines reach is refused without one, before anything is served."""
    monkeypatch.delenv(VARIABLE, raising=False)
    with (
        pytest.raises(ConfigurationError, match="needs a token"),
        served(tmp_path, admin="0.0.0.0:0"),
    ):
        pass


def test_a_wrong_token_is_refused_without_a_hint(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Health needs no token; the audit log has the token's name, or that there is none, and never the token."""
    tokens = tmp_path / "tokens"
    tokens.write_text(f"# of the team\nops {TOKEN}\n")
    with served(tmp_path, admin_tokens=tokens) as api, caplog.at_level(logging.INFO):
        for header in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": TOKEN}):
            for method, path in (("GET", "/status"), ("PUT", "/pause"), ("GET", "/openapi.json")):
                content = {"error_code": 401, "message": "Unauthorized"}
                assert api.ask(method, path, **header) == (401, content)
        assert api.control.pauses.paused.parts() == []
        assert api.ask("GET", "/health/live")[0] == 200
        assert api.ask("GET", "/page/")[0] == 200
        assert api.ask("PUT", "/pause", Authorization=f"bearer {TOKEN}")[0] == 202
        assert api.ask("PUT", f"/pause?{TOKEN}&token={TOKEN}")[0] == 401
    assert "ops at 127.0.0.1: PUT /pause: 202" in caplog.text
    assert "a client without a valid token at 127.0.0.1: PUT /pause?***&***: 401" in caplog.text
    assert caplog.text.count("a client without a valid token at 127.0.0.1: PUT /pause: 401") == 3
    assert TOKEN not in caplog.text


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("ops short", "at least 16 characters"),
        (f"ops short-{TOKEN}é", "all of ASCII"),
        ("a b c", "line 1: a line must be"),
        ("# later\n", "has no token"),
    ],
)
def test_a_file_with_useless_tokens_is_refused(tmp_path: Path, text: str, problem: str) -> None:
    """The error does not have the token."""
    (tmp_path / "tokens").write_text(text)
    with pytest.raises(ConfigurationError, match=problem) as caught:
        Tokens.of(tmp_path / "tokens", {})
    assert "short" not in str(caught.value)


def test_tokens_come_from_the_environment_too() -> None:
    """A client is named after its line or the variable."""
    tokens = Tokens.of(None, {VARIABLE: TOKEN})
    assert tokens.client(f"Bearer {TOKEN}") == VARIABLE
    assert tokens.client(f"Bearer {TOKEN}x") is None
    assert Tokens.of(None, {VARIABLE: f" {TOKEN}\n"}).client(f"Bearer {TOKEN}") == VARIABLE
    assert not Tokens.of(None, {VARIABLE: " "})


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "attacker.example"},
        {"Origin": "https://attacker.example"},
        {"Sec_Fetch_Site": "same-site"},
    ],
)
def test_pages_of_strangers_are_refused(api: Served, headers: dict[str, str]) -> None:
    """Also for requests that change nothing."""
    for method, path in (("GET", "/status"), ("POST", "/restart"), ("GET", "/page/")):
        status, content = api.ask(method, path, **headers)
        assert status == 403
        assert "neither pages of other web sites" in content["message"]
    assert api.control.ending is None


def test_large_requests_are_refused(api: Served) -> None:
    """Their headers and contents are bounded."""
    head = b"GET /status HTTP/1.1\r\nHost: localhost\r\n"
    many = b"".join(b"X-%d: %s\r\n" % (number, b"x" * 6000) for number in range(20))
    assert b" 431 " in api.raw(head + many + b"\r\n").partition(b"\r\n")[0]
    status, _ = api.ask("POST", "/messages/test/greeter/Ada", b"x" * 1_000_001)
    assert status == 413


def test_a_slow_client_is_cut_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However it drips its request, its time is over after a while, and others are served meanwhile."""
    monkeypatch.setattr(request_stream, "REQUEST_SECONDS", 1)
    with served(tmp_path) as api, socket.create_connection(("127.0.0.1", api.port)) as client:
        client.settimeout(SECONDS)
        client.sendall(b"GET /status HTTP/1.1\r\n")
        assert api.ask("GET", "/status")[0] == 200
        assert client.recv(1) == b""


def test_a_port_that_is_taken_ends_the_start_with_one_sentence(tmp_path: Path) -> None:
    """The sentence names the setting."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(PlatformError) as caught, served(tmp_path, admin=port):
            pass
    assert caught.value.message == (
        f"the admin API cannot listen at 127.0.0.1, port {port}: Address already in use; give "
        "spark.statefun.admin another port"
    )


def test_the_page_is_shown_to_browsers(api: Served) -> None:
    """They are sent to it from the root; no other file is served."""
    assert api.ask("GET", "/", Accept="text/html,*/*")[0] == 302
    assert "<title>statefun</title>" in api.ask("GET", "/page/")[1]
    for path in ("/page/__init__.py", "/page/..%2fadmin_server.py", "/page/none"):
        assert api.ask("GET", path)[0] == 404


def test_a_module_file_is_shown_without_secrets(tmp_path: Path) -> None:
    """However they are written; references to secrets stay, as they are none."""
    file = tmp_path / "module.yaml"
    file.write_text(
        """\
# the password is hunter2
a: 1
sasl.password: hunter2
ssl.key.password: ${KEY}
'my secret':
  - hunter2
token: ${TOKEN:-hunter2}
properties: {sasl.jaas.config: 'Login username="ada" password="hunter2";'}
options: login;password=hunter2
url: https://ada:hunter2@host/?sig=hunter2
ssl.truststore.password: &anchor !!str "hunter2
  hunter2"
ssl.keystore.password: | # hunter2
  hunter2
plain: &plain hunter2
sasl.oauthbearer.client.secret: *plain
cycle: &cycle [1, *cycle]
data:
  module.yaml: | # hunter2
    kind: x # hunter2

    spec: {sasl.password: hunter2, a: 1}
  other.yaml: "a: 1\\nsasl.password: hunter2"
last: 1
"""
    )
    with served(tmp_path, module=file) as api:
        ((found),) = api.ask("GET", "/module")[1]
    assert found["file"] == "module.yaml"
    lines = found["text"].split("\n")
    assert lines.index("last: 1") == file.read_text().split("\n").index("last: 1")
    cycle: list[object] = [1]
    cycle.append(cycle)
    shown = yaml.safe_load(found["text"])
    assert repr(shown.pop("cycle")) == repr(cycle)
    assert shown == {
        "a": 1,
        "sasl.password": "***",
        "ssl.key.password": "${KEY}",
        "my secret": ["***"],
        "token": "***",
        "properties": {"sasl.jaas.config": "***"},
        "options": "login;password=***",
        "url": "https://host/?sig=***",
        "ssl.truststore.password": "***",
        "ssl.keystore.password": "***\n",
        "plain": "***",
        "sasl.oauthbearer.client.secret": "***",
        "data": {
            "module.yaml": 'kind: x  \n\nspec: {sasl.password: "***", a: 1}\n',
            "other.yaml": 'a: 1\nsasl.password: "***"',
        },
        "last": 1,
    }
    assert "hunter2" not in found["text"]


def test_warnings_are_at_the_lines_of_module_files(tmp_path: Path) -> None:
    """They are those of ``statefun validate`` for an application that runs."""
    file = tmp_path / "module.yaml"
    unused = f"test/{tmp_path.name}"  # no module, such as this one, mentions it
    file.write_text("# a comment" + MODULE.replace("id: test/out", f"id: {unused}"))
    with served(tmp_path, declared=load_module_files([file]), module=file) as api:
        ((shown),) = api.ask("GET", "/module")[1]
    (found,) = shown["findings"]
    assert (found["severity"], found["text"]) == (
        "warning",
        f"egress {unused} is mentioned nowhere in the program",
    )
    assert "kind: io.statefun.kafka.v1/egress" in shown["text"].split("\n")[found["line"] - 1]


def test_metrics_are_read_by_prometheus(api: Served) -> None:
    """Its own parser finds types, labels and values; no label has an address."""
    figures = api.figures
    counts = Outcome.FunctionCounts(
        typename="test/greeter",
        invocations=3,
        messages={"test/greeter": 2},
        records={"test/out": 4},
        durations=[1, *[0] * 13, 1],
        seconds=20.5,
    )
    failed = Outcome.Failed(typename="test/greeter", code="SF300", retried=True, count=5)
    figures.staged([Outcome(functions=[counts], failed=[failed]), Outcome(functions=[counts])])
    figures.partitions = [PartitionFigures("test/in", 'a"\\\n', "0", "g", 17, 2, 7)]
    figures.egresses = {"test/out": EgressFigures(8, 1, 1)}
    text = api.ask("GET", "/metrics")[1]

    families = {each.name: each for each in text_string_to_metric_families(text)}
    values = {
        (sample.name, *sample.labels.values()): sample.value
        for family in families.values()
        for sample in family.samples
    }
    assert values["statefun_function_in_total", "test/greeter"] == 6
    assert values["statefun_function_out_total", "test/greeter", "test/greeter"] == 4
    assert values["statefun_function_out_egress_total", "test/greeter", "test/out"] == 8
    assert values["statefun_function_failures_total", "test/greeter", "SF300"] == 5
    assert values["statefun_function_retries_total", "test/greeter"] == 5
    assert values["messaging_process_duration_seconds_bucket", "test/greeter", "0.005"] == 2
    assert values["messaging_process_duration_seconds_bucket", "test/greeter", "10.0"] == 2
    assert values["messaging_process_duration_seconds_bucket", "test/greeter", "+Inf"] == 4
    assert values["messaging_process_duration_seconds_count", "test/greeter"] == 4
    assert values["messaging_process_duration_seconds_sum", "test/greeter"] == 41
    consumed = "messaging_client_consumed_messages_total"
    assert values[consumed, "kafka", "test/in", 'a"\\\n', "0", "g"] == 10
    assert values["messaging_client_sent_messages_total", "test/out"] == 8
    assert values["statefun_egress_lag_records", "test/out"] == 1
    assert families["messaging_process_duration_seconds"].type == "histogram"
    assert families["statefun_function_in"].type == "counter"


def test_the_topology_has_the_busiest_edges(api: Served) -> None:
    """From what has flowed; a limit leaves the others out, and says how many there are."""
    names = [f"test/f{number}" for number in range(100)]
    api.figures.staged(
        [
            Outcome(
                functions=[
                    Outcome.FunctionCounts(
                        typename=name,
                        messages=dict.fromkeys(names, number + 1),
                        durations=[0] * 15,
                    )
                    for number, name in enumerate(names)
                ]
            )
        ]
    )
    content = api.ask("GET", "/topology?limit=100")[1]
    assert content["total_edges"] == 10_001
    assert {each["origin"]["name"] for each in content["edges"]} == {"test/f99"}
    assert {"kind": "ingress", "name": "test/in", "failures": 0} in content["nodes"]
    assert api.ask("GET", "/topology?limit=-1")[0] == 400


def test_idle_connections_keep_nobody_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The one that has waited longest makes room, also if it has sent a part of its request."""
    monkeypatch.setattr("statefun.runtime.connections._MOST", 3)
    with served(tmp_path) as api, ExitStack() as clients:
        for part in (b"", b"GET / HT", b"") * 2:
            idle = socket.create_connection(("127.0.0.1", api.port), SECONDS)
            clients.enter_context(idle)
            idle.sendall(part)
        for _ in range(9):
            assert api.ask("GET", "/status")[0] == 200
