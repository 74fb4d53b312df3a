# SPDX-License-Identifier: Apache-2.0
"""The files of ``deploy/``: each has the form that its reader knows, and the settings exist.

The fields are those of the operators' resource definitions, as of their versions with ``spark.apache.org/v1`` and
``sparkoperator.k8s.io/v1beta2``.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs
import pytest
import yaml

from statefun.cli import main
from statefun.runtime.settings import Settings

DEPLOY = Path(__file__).parents[2] / "deploy"
CHART = DEPLOY / "helm" / "statefun"

_POD = {"metadata": {"labels": None, "annotations": None}, "spec": None}
_RESTARTS = {
    "restartPolicy": {"Always", "Never", "OnFailure", "OnInfrastructureFailure"},
    "maxRestartAttempts": int,
    "restartBackoffMillis": int,
    "restartCounterResetMillis": int,
}
APACHE = {
    "pyFiles": str,
    "deploymentMode": {"ClusterMode", "ClientMode"},
    "sparkConf": None,
    "driverSpec": {"podTemplateSpec": _POD},
    "applicationTolerations": {
        "resourceRetainPolicy": {"Always", "Never", "OnFailure"},
        "restartConfig": _RESTARTS,
        "applicationTimeoutConfig": {"forceTerminationGracePeriodMillis": int},
    },
    "runtimeVersions": {"sparkVersion": str},
}
_KUBEFLOW_POD = {
    "cores": int,
    "memory": str,
    "memoryOverhead": str,
    "env": None,
    "envFrom": None,
}
KUBEFLOW = {
    "type": {"Python"},
    "pythonVersion": {"3"},
    "mode": {"cluster"},
    "image": str,
    "mainApplicationFile": str,
    "sparkVersion": str,
    "sparkConf": None,
    "restartPolicy": {
        "type": {"Never", "Always", "OnFailure"},
        "onFailureRetries": int,
        "onFailureRetryInterval": int,
        "onSubmissionFailureRetries": int,
        "onSubmissionFailureRetryInterval": int,
    },
    "driverPodDisruptionBudget": bool,
    "driver": {
        **_KUBEFLOW_POD,
        "serviceAccount": str,
        "terminationGracePeriodSeconds": int,
        "labels": None,
        "annotations": None,
        "template": _POD,
    },
    "executor": {**_KUBEFLOW_POD, "instances": int},
}


def check_fields(value: Any, known: Any, where: str = "spec") -> None:
    """Check that all fields are known, and that their values are of the right kind."""
    match known:
        case dict():
            for name, inner in value.items():
                assert name in known, f"{where}.{name}"
                check_fields(inner, known[name], f"{where}.{name}")
        case set():
            assert value in known, where
        case type():
            assert isinstance(value, known), where


def check_conf(conf: Mapping[str, str]) -> Settings:
    """Check settings of Spark and statefun, and return the latter."""
    assert all(isinstance(value, str) for value in conf.values())
    settings = Settings.resolve(conf, None)
    assert settings.checkpoint.is_object_store
    return settings


def check_probe(container: Mapping[str, Any], checkpoint: str) -> None:
    """Check that the probe of a container is a command of ours, and gives it time to end."""
    probe = container["livenessProbe"]
    name, *arguments = probe["exec"]["command"]
    assert name == "statefun"
    assert arguments[:2] == ["status", checkpoint]
    assert "--check" in arguments
    with pytest.raises(SystemExit) as ended:
        main([*arguments, "--help"])
    assert ended.value.code == 0
    assert probe["timeoutSeconds"] < probe["periodSeconds"]


def check_scraped(annotations: Mapping[str, str], settings: Settings) -> None:
    """Check that Prometheus is sent to the admin API, which has the metrics of the alerts, and reaches it."""
    assert settings.admin is not None
    assert settings.admin.host == "0.0.0.0"  # noqa: S104 - and so it needs a token
    assert annotations == {
        "prometheus.io/scrape": "true",
        "prometheus.io/port": str(settings.admin.port),
        "prometheus.io/path": "/metrics",
    }


def check_apache(application: Mapping[str, Any], budget: Mapping[str, Any]) -> None:
    """Check the application for the operator of Apache Spark, and its disruption budget."""
    assert (application["apiVersion"], application["kind"]) == (
        "spark.apache.org/v1",
        "SparkApplication",
    )
    spec = application["spec"]
    check_fields(spec, APACHE)
    conf = spec["sparkConf"]
    settings = check_conf(conf)
    cores = re.fullmatch(r"local\[(\d+)\]", conf["spark.kubernetes.driver.master"])
    assert cores is not None
    assert cores[1] == conf["spark.kubernetes.driver.limit.cores"]
    template = spec["driverSpec"]["podTemplateSpec"]
    pod = template["spec"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["terminationGracePeriodSeconds"] >= 3 * settings.shutdown_grace.total_seconds()
    [container] = pod["containers"]
    check_probe(container, settings.checkpoint.location)
    check_scraped(template["metadata"]["annotations"], settings)
    assert (budget["apiVersion"], budget["kind"]) == ("policy/v1", "PodDisruptionBudget")
    assert budget["spec"]["maxUnavailable"] == 0
    labels = budget["spec"]["selector"]["matchLabels"]
    assert labels.items() <= template["metadata"]["labels"].items()


def documents(text: str) -> list[Any]:
    """Return the documents of a YAML file that are not empty."""
    return [each for each in yaml.safe_load_all(text) if each is not None]


def test_manifests_for_the_operator_of_apache_spark() -> None:
    """One pod, restarts with a pause, and a budget that keeps nodes from being drained."""
    application, budget = documents((DEPLOY / "kubernetes" / "apache-operator.yaml").read_text())
    check_apache(application, budget)
    restarts = application["spec"]["applicationTolerations"]["restartConfig"]
    assert restarts["restartBackoffMillis"] == 5_000
    assert restarts["restartCounterResetMillis"] == 600_000


def test_manifests_for_the_operator_of_kubeflow() -> None:
    """A driver and executors, which have the same image and the same secrets."""
    [application] = documents((DEPLOY / "kubernetes" / "kubeflow-operator.yaml").read_text())
    assert application["apiVersion"] == "sparkoperator.k8s.io/v1beta2"
    spec = application["spec"]
    check_fields(spec, KUBEFLOW)
    settings = check_conf(spec["sparkConf"])
    assert settings.state_partitions == spec["executor"]["instances"] * spec["executor"]["cores"]
    assert spec["executor"]["envFrom"] == spec["driver"]["envFrom"]
    check_scraped(spec["driver"]["annotations"], settings)
    [container] = spec["driver"]["template"]["spec"]["containers"]
    assert container["name"] == "spark-kubernetes-driver"
    check_probe(container, settings.checkpoint.location)
    # They count as long as the application lives.
    assert spec["restartPolicy"]["onFailureRetries"] >= 1000


@attrs.frozen
class Chart:
    """The chart, rendered by Go's templates, as Helm does."""

    renderer: Path

    def rendered(self, **values: Any) -> list[Any]:
        """Return the documents of a release, with other values than the chart's."""
        given = yaml.safe_load((CHART / "values.yaml").read_text()) | values
        files = sorted((CHART / "templates").iterdir())
        command = [str(self.renderer), json.dumps(given), "greeter", *map(str, files)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return documents(done.stdout)


@pytest.fixture(scope="module")
def chart(tmp_path_factory: pytest.TempPathFactory) -> Chart:
    """Build the renderer, or skip where there is no Go."""
    go = shutil.which("go")
    if go is None:
        pytest.skip("there is no go")
    renderer = tmp_path_factory.mktemp("chart") / "render"
    source = Path(__file__).with_name("render.go")
    subprocess.run([go, "build", "-o", renderer, source], check=True)
    return Chart(renderer)


def test_the_chart(chart: Chart) -> None:
    """It has the fields of the manifests, and names of the release."""
    application, budget = chart.rendered()
    check_apache(application, budget)
    assert application["metadata"]["name"] == budget["metadata"]["name"] == "greeter"


def test_values_of_the_chart(chart: Chart) -> None:
    """Settings are texts whatever they were; parts can be left out."""
    checkpoint = "s3a://b/c?endpoint_override=minio:9000&scheme=http"
    conf = {"spark.statefun.records-per-batch": 1000}
    [application] = chart.rendered(
        checkpoint=checkpoint,
        sparkConf=conf,
        cores=4,
        secret="",
        probe={"enabled": False},
        disruptionBudget=False,
        metricsPort=0,
    )

    spark = application["spec"]["sparkConf"]
    settings = check_conf(spark)
    assert (settings.checkpoint.location, settings.records_per_batch) == (checkpoint, 1000)
    assert spark["spark.kubernetes.driver.master"] == "local[4]"
    template = application["spec"]["driverSpec"]["podTemplateSpec"]
    [container] = template["spec"]["containers"]
    assert container.keys() == {"name", "env"}
    assert settings.admin is None
    assert "annotations" not in template["metadata"]


def test_compose() -> None:
    """The application waits for the broker, and has more time to end than its calls have."""
    content = yaml.safe_load((DEPLOY / "compose" / "compose.yaml").read_text())
    app, kafka = content["services"]["app"], content["services"]["kafka"]
    conf = dict(
        each.removeprefix("--conf=").split("=", 1)
        for each in app["command"]
        if each.startswith("--conf=")
    )
    settings = Settings.resolve(conf, None)
    assert app["stop_grace_period"] == "60s"
    assert settings.shutdown_grace.total_seconds() < 60
    mounts = [mount.split(":") for each in (app, kafka) for mount in each["volumes"]]
    assert {name for name, _ in mounts} == content["volumes"].keys()
    assert any(settings.checkpoint.location.startswith(path) for _, path in mounts)
    # A new volume gets the owner that its folder has in the image, or else root.
    image = (DEPLOY.parent / app["build"]["dockerfile"]).read_text()
    last = image[image.rindex("FROM ") :]
    user = re.findall(r"^USER (\d+)$", last, re.MULTILINE)[-1]
    folder = next(path for name, path in mounts if name == "state")
    assert f"\nRUN install -d -o {user} -g {user} {folder}\n" in last
    assert last.index("USER root") < last.index("RUN install")
    assert app["depends_on"]["kafka"]["condition"] == "service_healthy"
    assert app["environment"]["KAFKA_ADDRESS"] in kafka["environment"]["KAFKA_ADVERTISED_LISTENERS"]
    assert ":latest" not in (DEPLOY / "compose" / "compose.yaml").read_text()
    check = app["healthcheck"]["test"]
    assert check == ["CMD", "statefun", "status", settings.checkpoint.location, "--check"]


def test_the_dockerfile() -> None:
    """Several stages from a pinned image, another user than root, and commands without a shell."""
    text = (DEPLOY / "docker" / "Dockerfile").read_text()
    assert re.search(r"^ARG SPARK_IMAGE=[\w./-]+:\d+\.\d+\.\d+", text, re.MULTILINE)
    assert re.findall(r"^FROM (\S+)", text, re.MULTILINE) == ["${SPARK_IMAGE}"] * 2
    last = text[text.rindex("FROM ") :]
    assert re.search(r"^USER [1-9]\d*$", last, re.MULTILINE)
    for name in ("ENTRYPOINT", "CMD"):
        command = re.search(rf"^{name} (\[.*\])$", last, re.MULTILINE)
        assert command is not None
        assert json.loads(command[1])
    assert "/usr/bin/tini" in last
