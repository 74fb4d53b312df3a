# SPDX-License-Identifier: Apache-2.0
"""``statefun validate``: problems that are found before an application starts."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._acl import AclBinding, AclOperation, AclPermissionType
from confluent_kafka.admin._resource import ResourcePatternType, ResourceType
from confluent_kafka.cimpl import NewPartitions
from harness import KafkaHarness, run

from statefun import Context, Message, StatefulFunctions, StringType, ValueSpec
from statefun.cli import main
from statefun.dev import EmbeddedKafka
from statefun.sdk import functions as sdk_functions

PATIENCE = timedelta(seconds=1)
APP = """
import statefun
from helpers import OUT

functions = statefun.StatefulFunctions()

@functions.bind("test.fns/one")
def one(ctx, message):
    ctx.send(statefun.KafkaEgressMessage(OUT, topic="out", value="x"))

@functions.bind("test.fns/two", on_failure="dead-letter")
def two(ctx, message):
    ctx.send(statefun.KafkaEgressMessage("test/out", topic="out", value="x"))

if __name__ == "__main__":
    raise SystemExit("it runs")
"""
MODULE = """\
kind: io.statefun.kafka.v1/ingress
spec:
  id: test/in
  address: kafka:9092
  consumerGroupId: tests
  topics:
    - {topic: users, valueType: io.statefun.types/string, targets: [test.fns/one]}
---
kind: io.statefun.kafka.v1/egress
spec: {id: test/out, address: 'kafka:9092', deadLetterTopic: dead}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Change to a folder with an application in which all is well."""
    (tmp_path / "app.py").write_text(APP)
    (tmp_path / "helpers.py").write_text('OUT = "test/out"\n')
    (tmp_path / "module.yaml").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    # Tests of this process may have registered some for everybody.
    monkeypatch.setattr(sdk_functions.default_functions, "_functions", {})
    yield tmp_path
    sys.modules.pop("helpers", None)


def change(file: Path, old: str, new: str) -> None:
    """Change a file in one place."""
    text = file.read_text()
    assert text.count(old) == 1
    file.write_text(text.replace(old, new))


def test_all_is_well(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The program is loaded, and not run; without a program, only the module files are checked."""
    assert main(["validate", str(folder / "app.py")]) == 0
    assert main(["validate"]) == 0
    assert main(["validate", "app.py", "module.yaml", "--json"]) == 0

    out = capsys.readouterr().out
    assert out == (
        "valid (1 ingress, 1 egress, 2 functions): all is well\n"
        "valid (1 ingress, 1 egress): all is well\n"
        '{\n "valid": true,\n "findings": []\n}\n'
    )


def test_classes_of_the_program_have_their_plain_names(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """And not the name of the module as which the command loads the program."""
    (folder / "app.py").write_text(
        "import dataclasses\nimport helpers\nfrom statefun import Context, function\n\n"
        "@dataclasses.dataclass\nclass Plug:\n    volts: int = 0\n\n"
        "@function('test.fns/one')\ndef one(ctx: Context, plugs: Plug | list[Plug]) -> None: ...\n\n"
        "@function('test.fns/two')\ndef two(ctx: Context, plug: helpers.Plug) -> None: ...\n\n"
        "@one.on(Plug)\ndef again(ctx: Context, plug: Plug) -> None: ...\n"
    )
    (folder / "helpers.py").write_text(
        "import attrs\n\n@attrs.frozen\nclass Plug:\n    watts: int\n"
    )

    assert main(["validate", "app.py"]) == 1
    change(folder / "app.py", "@one.on(Plug)", "@function('test.fns/three')")
    assert main(["validate", "app.py"]) == 1

    out = capsys.readouterr().out
    assert "already takes values of type Plug\n" in out
    assert "takes io.statefun.types/string, its valueType; they take Plug, list[Plug]. Add" in out
    assert (
        "Plug, which test.fns/one takes, and helpers.Plug, which test.fns/two takes, both have"
        in out
    )
    assert "__statefun_validate__" not in out


def test_all_ill_formed_functions_are_reported_at_once(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each error has the place of the decorator; handlers of such functions are no further error."""
    (folder / "app.py").write_text(
        "from statefun import Context, function\n\n"
        "@function('no-namespace')\ndef one(ctx: Context, text: str) -> None: ...\n\n"
        "@one.on(int)\ndef number(ctx: Context, value: int) -> None: ...\n\n"
        "if True:\n    @function('test.fns/two', timeout=3)\n    def two(ctx, message): ...\n\n"
        "@function('test.fns/three')\ndef three(ctx: Context, text: str) -> None: ...\n\n"
        "@three.on(str)\ndef again(ctx: Context, text: str) -> None: ...\n"
    )
    change(folder / "module.yaml", "consumerGroupId", "consumerGruopId")

    assert main(["validate", "app.py"]) == 1

    first, second, third, file, last = capsys.readouterr().out.splitlines()
    assert first.startswith("error: app.py:3:1: [SF200] one (app.py:3): typename 'no-namespace'")
    assert second.startswith(
        "error: app.py:10:5: [SF200] two (app.py:10): a timeout must be a positive"
    )
    assert third.startswith(
        "error: app.py:16:1: [SF200] again (app.py:16): the handler three (app.py:13) already takes"
    )
    assert file.startswith("error: module.yaml:5:3: ")
    assert last.startswith("not valid")


def test_a_value_that_cannot_be_sent_to_workers_is_an_error(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A lock in a closure is an error that names it; a global lock is made anew in each worker."""
    app = folder / "app.py"
    change(app, "functions = ", "import threading\nlock = threading.Lock()\nfunctions = ")
    change(app, "def one(ctx, message):", "def one(ctx, message):\n    lock.acquire()")
    assert main(["validate", "app.py"]) == 0
    assert capsys.readouterr().out.endswith("all is well\n")
    change(app, "lock.acquire()", "lock.acquire() # [")
    text = app.read_text()
    first, last = text.index("@functions.bind"), text.index("@functions.bind", 200)
    inner = text[first:last].strip().replace("\n", "\n    ")
    app.write_text(
        f"{text[:first]}def make(lock):\n    {inner}\nmake(threading.Lock())\n{text[last:]}"
    )

    assert main(["validate", "app.py"]) == 1

    out = capsys.readouterr().out
    assert out.startswith(
        "error: app.py:1:1: [SF700] function test.fns/one cannot be sent to Python"
    )
    assert "make.<locals>.one (app.py:" in out
    assert "uses lock, a _thread.lock, which cannot be pickled" in out


def test_components_of_a_program_are_checked(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Any variable may hold them; then no module file is needed."""
    ingress = (
        "statefun.KafkaIngress.for_id('test/python').with_kafka_address('kafka:9092')"
        ".with_consumer_group_id('tests').with_topic('users', value_type='a/b', targets=['{}'])"
        ".build()"
    )
    app = folder / "app.py"
    component = f"components = [{ingress}]\n".format("test.fns/one")
    change(app, 'if __name__ == "__main__"', component + 'if __name__ == "__main__"')
    assert main(["validate", "app.py"]) == 0
    both = capsys.readouterr().out.splitlines()[-1]
    (folder / "module.yaml").unlink()
    change(app, ', on_failure="dead-letter"', "")
    assert main(["validate", "app.py"]) == 0
    alone = capsys.readouterr().out.splitlines()[-1]
    change(app, "targets=['test.fns/one']", "targets=['test.fns/onne']")
    assert main(["validate", "app.py"]) == 1
    wrong = capsys.readouterr().out.splitlines()
    assert both.startswith("valid (2 ingresses, 1 egress, 2 functions)")
    assert alone.startswith("valid (1 ingress, 0 egresses, 2 functions)")
    assert wrong[0].startswith(
        "error: app.py:15:1: target test.fns/onne of ingress test/python has no"
    )


def test_all_problems_are_reported_at_once(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Errors and warnings have a file, line and column."""
    file = folder / "module.yaml"
    change(file, "test.fns/one]", "test.fns/onne, test.fns/two]")
    change(file, "io.statefun.types/string", "test/unknown")
    change(file, ", deadLetterTopic: dead", "")
    change(file, "id: test/out", "id: test/other")
    file.write_text(
        f"{file.read_text()}---\nversion: '1.0'\nmodule: {{meta: {{type: remote}}, spec: {{functions: "
        "[{function: {meta: {kind: grpc, type: test/grpc}, spec: {host: here, port: 1}}}]}}\n"
    )

    assert main(["validate", "app.py"]) == 1

    assert capsys.readouterr().out.splitlines() == [
        (
            "warning: module.yaml:13:51: functions/grpc test/grpc is valid, but this version of "
            "statefun cannot run it and ignores it"
        ),
        (
            "error: module.yaml:7:7: target test.fns/onne of ingress test/in has no function; did you "
            "mean test.fns/one?"
        ),
        (
            "error: function test.fns/two: its failure policy is dead-letter, but no egress has a "
            "deadLetterTopic; add one to an egress"
        ),
        (
            "warning: module.yaml:7:7: topic users: no type named test/unknown is registered; "
            "functions can read such values by raw_value() or as_type() only"
        ),
        "warning: module.yaml:9:1: egress test/other is mentioned nowhere in the program",
        "not valid (1 ingress, 1 egress, 2 functions): 2 errors, 3 warnings",
    ]


def test_functions_behind_endpoints_have_their_own_types_and_egresses(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Unknown types and unmentioned egresses are no warnings if functions are behind endpoints."""
    (folder / "app.py").write_text(
        "import statefun\nif __name__ == '__main__':\n    statefun.run()\n"
    )
    file = folder / "module.yaml"
    change(file, "io.statefun.types/string", "test/unknown")
    change(file, ", deadLetterTopic: dead", "")
    endpoint = (
        "kind: io.statefun.endpoints.v2/http\nspec: {functions: test.fns/*, urlPathTemplate: "
        "'http://there:8000/'}\n"
    )
    ports = "kind: io.statefun.playground.v1/{}\nspec: {{port: {}{}}}\n".format
    playground = f"{ports('ingress', 8090, '')}---\n{ports('egress', 8091, ', topics: [a]')}"
    file.write_text(f"{file.read_text()}---\n{endpoint}---\n{playground}")

    assert main(["validate", "app.py"]) == 0

    out = capsys.readouterr().out
    assert out == "valid (2 ingresses, 2 egresses, 1 endpoint, 0 functions): all is well\n"


def test_an_egress_may_be_mentioned_in_a_module_without_functions(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As a constant of a helper."""
    change(folder / "app.py", '"test/out"', "OUT")
    change(folder / "module.yaml", ", deadLetterTopic: dead", "")
    change(folder / "app.py", ', on_failure="dead-letter"', "")
    assert main(["validate", "app.py"]) == 0
    change(folder / "helpers.py", "test/out", "test/other")
    sys.modules.pop("helpers")
    assert main(["validate", "app.py"]) == 0

    assert capsys.readouterr().out.splitlines() == [
        "valid (1 ingress, 1 egress, 2 functions): all is well",
        "warning: module.yaml:9:1: egress test/out is mentioned nowhere in the program",
        "valid (1 ingress, 1 egress, 2 functions): 1 warning",
    ]


def test_a_function_that_is_also_behind_an_endpoint_is_the_only_finding(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The other endpoints have their functions, with types and egresses of their own."""
    change(folder / "app.py", '@functions.bind("test.fns/two", on_failure="dead-letter")\n', "")
    file = folder / "module.yaml"
    change(
        file,
        "io.statefun.types/string, targets: [test.fns/one]",
        "test/unknown, targets: [r.fns/x, r.fns/y]",
    )
    change(file, "test/out", "test/other")
    change(file, ", deadLetterTopic: dead", "")
    endpoint = (
        "---\nkind: io.statefun.endpoints.v2/http\n"
        "spec: {{functions: {}, urlPathTemplate: 'http://there:8000/'}}\n"
    ).format
    file.write_text(f"{file.read_text()}{endpoint('r.fns/*')}{endpoint('test.fns/one')}")

    assert main(["validate", "app.py"]) == 1

    assert capsys.readouterr().out.splitlines() == [
        "error: module.yaml:15:1: test.fns/one is registered in the program, too",
        "not valid (1 ingress, 1 egress, 2 endpoints, 1 function): 1 error",
    ]


def test_a_function_that_is_also_behind_an_endpoint_may_use_any_egress(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """There is no warning, since nobody knows which egresses it mentions there."""
    change(folder / "app.py", ', on_failure="dead-letter"', "")
    file = folder / "module.yaml"
    change(file, ", deadLetterTopic: dead", "")
    change(file, "id: test/out", "id: test/other")
    file.write_text(
        f"{file.read_text()}---\nkind: io.statefun.endpoints.v2/http\n"
        "spec: {functions: test.fns/one, urlPathTemplate: 'http://there:8000/'}\n"
    )

    assert main(["validate", "app.py"]) == 1

    out = capsys.readouterr().out.splitlines()
    assert [line.partition(": ")[0] for line in out] == [
        "error",
        "not valid (1 ingress, 1 egress, 1 endpoint, 2 functions)",
    ]


def test_findings_are_data_as_well(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """JSON has the file, line, column, key, text and severity, for editors and CI."""
    change(folder / "module.yaml", "consumerGroupId", "consumerGroup")

    assert main(["validate", "--json"]) == 1

    said = json.loads(capsys.readouterr().out)
    assert not said["valid"]
    assert said["findings"] == [
        {
            "severity": "error",
            "file": "module.yaml",
            "line": 5,
            "column": 3,
            "key": "spec.consumerGroup",
            "text": "unknown key 'consumerGroup'; did you mean 'consumerGroupId'? allowed keys: "
            "address, autoOffsetResetPosition, bootstrapFrom, commitOffsets, consumerGroupId, eventTime, "
            "failurePolicy, id, onDataLoss, properties, startupPosition, stopPosition, topics",
        }
    ]


@pytest.mark.parametrize(
    ("program", "line", "text"),
    [
        (
            "x = 1 / 0\n",
            1,
            "ZeroDivisionError: division by zero, line 1; put all code that does not",
        ),
        ("\n\nx = (]\n", 3, "SyntaxError: closing parenthesis"),
        (
            "\nimport sys\nsys.exit(3)\n",
            3,
            "SystemExit: 3, line 3; put all code that does not register",
        ),
        (
            "import statefun\nstatefun.TypeName.parse('x')\n",
            2,
            "[SF200] typename 'x' is not of the form",
        ),
    ],
)
def test_a_program_that_cannot_be_loaded_is_named(
    folder: Path, capsys: pytest.CaptureFixture[str], program: str, line: int, text: str
) -> None:
    """The error has the line of the program, and no traceback."""
    (folder / "app.py").write_text(program)

    assert main(["validate", "app.py"]) == 1

    first, *_ = capsys.readouterr().out.splitlines()
    assert first.startswith(f"error: app.py:{line}:1: ")
    assert text in first


def test_there_is_one_program(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Two programs are an error."""
    assert main(["validate", "app.py", str(folder / "app.py")]) == 1
    assert (
        capsys.readouterr().err
        == "statefun: [SF100] give at most one program (a file that ends with .py), not 2\n"
    )


def test_the_schema_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    """The command prints the schema, for editors that want a file."""
    assert main(["schema"]) == 0
    assert json.loads(capsys.readouterr().out)["title"] == "statefun module"


@pytest.mark.broker
@pytest.mark.spark
def test_a_checkpoint_is_compared(
    folder: Path, kafka: KafkaHarness, capsys: pytest.CaptureFixture[str]
) -> None:
    """Changed types, removed values and functions, and other ingresses are findings."""
    users, checkpoint = kafka.topic("users"), folder / "checkpoint"
    module = kafka.module({users: ["test.fns/one", "test.fns/gone"]})
    functions = StatefulFunctions()
    specs = [ValueSpec(name, StringType) for name in ("changed", "dropped", "kept")]

    @functions.bind("test.fns/one", specs=specs)
    def one(ctx: Context, _message: Message) -> None:
        ctx.storage.changed = ctx.storage.dropped = ctx.storage.kept = "x"

    @functions.bind("test.fns/gone", specs=specs[:1])
    def gone(ctx: Context, _message: Message) -> None:
        ctx.storage.changed = "x"

    (folder / "app.py").write_text(
        "from statefun import *\n"
        "specs = [ValueSpec('changed', IntType), ValueSpec('kept', StringType)]\n"
        "@function('test.fns/one', specs=specs)\n"
        "def one(ctx, message):\n    'sends to test/out'\n"
    )
    (folder / "module.yaml").write_text(module.replace(", test.fns/gone", ""))
    command = ["validate", "app.py", "--checkpoint", str(checkpoint)]
    assert main(command) == 0
    fresh = capsys.readouterr().out.splitlines()
    kafka.send(users, [("Ada", "a"), ("Alan", "a")])
    run(module, functions, checkpoint)
    assert main(command) == 1
    changed = capsys.readouterr().out.splitlines()
    change(folder / "module.yaml", "id: test/in", "id: test/other")
    assert main(command) == 1
    renamed = capsys.readouterr().out.splitlines()
    change(folder / "module.yaml", users, "others")
    assert main(command) == 1
    other = capsys.readouterr().out.splitlines()

    assert fresh[0] == f"warning: checkpoint {checkpoint} is still empty"
    stored = "is stored at 2 addresses"
    assert changed[:-1] == [
        (
            f"error: value 'changed' of function test.fns/one {stored} as io.statefun.types/string, "
            "but declared as io.statefun.types/int; use another name, or add upgrades= for the stored type"
        ),
        (
            f"warning: value 'dropped' of function test.fns/one {stored} as "
            "io.statefun.types/string, and the function no longer declares it"
        ),
        (
            "warning: function test.fns/gone has state at 2 addresses, and is not registered; the "
            "state is kept for a function of that name, or one with renamed_from='test.fns/gone'; did you "
            "mean test.fns/one?"
        ),
    ]
    assert renamed[0].startswith(
        "error: [SF600] ingress test/other is declared to read what ingress test/in has read in "
        f"checkpoint {checkpoint}"
    )
    assert [text.partition(" declared")[0] for text in other[:2]] == [
        "warning: ingress test/other is new to the checkpoint, and begins at its startup position",
        "warning: ingress test/in is no longer",
    ]


@pytest.mark.broker
@pytest.mark.spark
def test_the_offsets_of_a_checkpoint_are_compared_with_the_topics(
    folder: Path, kafka: KafkaHarness, capsys: pytest.CaptureFixture[str]
) -> None:
    """New and missing topics and partitions, and records that were deleted before they were read."""
    topics = {name: kafka.topic(name, 2) for name in ("kept", "left", "cut", "renewed")}
    checkpoint = folder / "checkpoint"
    module = kafka.module({topic: ["test.fns/one"] for topic in topics.values()})
    functions = StatefulFunctions()
    functions.register("test.fns/one", lambda ctx, message: None)
    for topic in topics.values():
        kafka.send(topic, [("Ada", "a")] * 3, partition=1)
    run(module, functions, checkpoint)
    file = folder / "module.yaml"
    file.write_text(module)
    command = ["validate", "--connect", "--checkpoint", str(checkpoint)]
    assert main(command) == 0
    fine = capsys.readouterr().out.splitlines()

    admin = AdminClient({"bootstrap.servers": kafka.address})
    admin.create_partitions([NewPartitions(topics["kept"], 3)])[topics["kept"]].result(30)
    kafka.send(topics["cut"], [("Ada", "a")] * 3, partition=1)
    before = TopicPartition(topics["cut"], 1, 5)
    admin.delete_records([before])[before].result(30)
    admin.delete_topics([topics["renewed"]])[topics["renewed"]].result(30)
    while topics["renewed"] in admin.list_topics().topics:
        time.sleep(0.1)
    kafka.topic("renewed", 1)
    change(file, f"    - {{topic: '{topics['left']}', ", f"    - {{topic: '{kafka.topic('new')}', ")
    assert main(command) == 1
    changed = capsys.readouterr().out.splitlines()
    change(file, "  topics:", "  onDataLoss: go-on\n  topics:")
    main(command)
    going_on = capsys.readouterr().out.splitlines()

    prefix = topics["kept"].removesuffix("kept")
    where = "module.yaml:1:1: ingress test/in: topic " + prefix
    deleted = "records from 3 to 4 were deleted before they were read"
    assert fine[:-1] == []
    assert sorted(changed[:-1]) == [
        (
            f"error: module.yaml:1:1: [SF600] ingress test/in no longer reads partitions that the "
            f"checkpoint has read; their unread records would be lost ({topics['left']}/0 from 0, "
            f"{topics['left']}/1 from 3); let the ingress read these partitions until the records "
            "are read, or set onDataLoss: go-on to start without these records"
        ),
        f"error: {where}cut, partition 1: {deleted}",
        f"error: {where}renewed lacks partitions that were read: 1",
        f"warning: {where}kept has new partitions: 2; they are read from their beginning",
        f"warning: {where}new has new partitions: 0; they are read from their beginning",
    ]
    assert f"warning: {where}cut, partition 1: {deleted}" in going_on
    assert (
        f"warning: {where}left was read by earlier runs, and this module no longer reads it"
        in going_on
    )


@pytest.fixture(scope="module")
def guarded() -> Iterator[EmbeddedKafka]:
    """Run a broker that has an authorizer, and a short limit for transactions."""
    config = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "allow.everyone.if.no.acl.found": "true",
        "transaction.max.timeout.ms": "60000",
    }
    with EmbeddedKafka(config=config) as broker:
        yield broker


@pytest.mark.broker
def test_clusters_are_checked(
    folder: Path, guarded: EmbeddedKafka, capsys: pytest.CaptureFixture[str]
) -> None:
    """Topics, rights, offsets and limits of a cluster are compared with the module file."""
    kafka = KafkaHarness(guarded, "validate")
    users = kafka.topic("users")
    module = kafka.module(
        {users: ["test.fns/one"]}, start="{type: group-offsets}", semantic="exactly-once"
    )
    file = folder / "module.yaml"
    file.write_text(module)
    assert main(["validate", "--connect"]) == 1
    first = capsys.readouterr().out.splitlines()

    change(file, "exactly-once}", "exactly-once, transactionTimeout: 1min}")
    assert main(["validate", "--connect"]) == 0
    valid = capsys.readouterr().out.splitlines()

    file.write_text(f"{file.read_text()}  deadLetterTopic: nowhere\n")
    _deny(guarded, users)
    assert main(["validate", "--connect"]) == 1
    last = capsys.readouterr().out.splitlines()

    no_offset = (
        f"warning: module.yaml:1:1: ingress test/in: group tests has no offset for {users}/0; a "
        "new checkpoint starts at the latest offset of these partitions (autoOffsetResetPosition)"
    )
    assert first == [
        no_offset,
        (
            "error: module.yaml:11:1: egress test/out: its transactionTimeout of 0:15:00 is longer "
            f"than {kafka.address} allows (transaction.max.timeout.ms: 0:01:00); shorten it, or raise "
            "the limit"
        ),
        "not valid (1 ingress, 1 egress): 1 error, 1 warning",
    ]
    assert valid == [no_offset, "valid (1 ingress, 1 egress): 1 warning"]
    assert last[0] == (
        f"error: module.yaml:1:1: ingress test/in: the user of the client has no right to read "
        f"topic {users}; grant this right"
    )
    assert last[-2].startswith(
        "error: module.yaml:11:1: [SF501] egress test/out: topic nowhere does not exist at"
    )


def _deny(broker: EmbeddedKafka, topic: str) -> None:
    """Take the right to read a topic from everybody."""
    rule = AclBinding(
        ResourceType.TOPIC,
        topic,
        ResourcePatternType.LITERAL,
        "User:ANONYMOUS",
        "*",
        AclOperation.READ,
        AclPermissionType.DENY,
    )
    others = AclBinding(
        ResourceType.TOPIC,
        topic,
        ResourcePatternType.LITERAL,
        "User:ANONYMOUS",
        "*",
        AclOperation.DESCRIBE,
        AclPermissionType.ALLOW,
    )
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    for future in admin.create_acls([rule, others]).values():
        future.result(30)


@pytest.mark.broker
def test_a_cluster_that_is_gone_is_a_finding(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each component that uses the cluster has a finding."""
    monkeypatch.setattr("statefun.inspect.outside_findings._PATIENCE", PATIENCE)
    text = (folder / "module.yaml").read_text()
    (folder / "module.yaml").write_text(text.replace("kafka:9092", "127.0.0.1:1"))

    assert main(["validate", "--connect"]) == 1

    out = capsys.readouterr().out.splitlines()
    assert out[0].startswith("error: module.yaml:1:1: [SF500] ingress test/in: no Kafka broker")
    assert out[1].startswith("error: module.yaml:9:1: [SF500] egress test/out: no Kafka broker")
