# SPDX-License-Identifier: Apache-2.0
"""The alert rules of ``deploy/prometheus``, as Prometheus' own tool evaluates them for series that a test gives."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
import yaml

ALERTS = Path(__file__).parents[2] / "deploy" / "prometheus" / "alerts.yaml"
_MINUTES = 60

Firing = Callable[[Mapping[str, str]], set[str]]
"""Returns the names of the alerts that fire after an hour of the given series."""


def names() -> list[str]:
    """Return the names of all alerts."""
    [group] = yaml.safe_load(ALERTS.read_text())["groups"]
    return [rule["alert"] for rule in group["rules"]]


@pytest.fixture
def firing(tmp_path: Path) -> Firing:
    """Give the function that evaluates the rules, or skip where there is no promtool."""
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("there is no promtool")

    def is_firing(alert: str, series: Mapping[str, str]) -> bool:
        file = tmp_path / f"{alert}.yaml"
        inputs = [{"series": name, "values": values} for name, values in series.items()]
        silent = {"eval_time": f"{_MINUTES}m", "alertname": alert, "exp_alerts": []}
        test = {"interval": "1m", "input_series": inputs, "alert_rule_test": [silent]}
        file.write_text(json.dumps({"rule_files": [str(ALERTS)], "tests": [test]}))
        command = [promtool, "test", "rules", str(file)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        output = done.stdout + done.stderr
        assert done.returncode == 0 or f"alertname: {alert}" in output, output
        return done.returncode != 0

    return lambda series: {each for each in names() if is_firing(each, series)}


def application(**changes: str) -> dict[str, str]:
    """Return the series of an application that commits nothing and has nothing to do, with changes.

    A change names a metric without its prefix and labels.
    """
    values = {
        "last_commit_age_seconds": f"0+60x{_MINUTES}",
        "ingress_lag_records": f"0x{_MINUTES}",
        "backlog_messages": f"0x{_MINUTES}",
        "calls_under_way": f"0x{_MINUTES}",
        "paused_ingress": f"0x{_MINUTES}",
        "paused_application": f"0x{_MINUTES}",
    } | changes
    place = 'job="statefun",instance="a:8083"'
    labels = {
        "ingress_lag_records": f'{place},statefun_ingress="a/in",messaging_destination_name="t",'
        'messaging_destination_partition_id="0"',
        "paused_ingress": f'{place},kind="ingress",name="a/in"',
        "paused_application": f'{place},kind="application",name=""',
    }
    return {
        f"statefun_{name.partition('_')[0] if name.startswith('paused') else name}"
        f"{{{labels.get(name, place)}}}": series
        for name, series in values.items()
    }


ALWAYS = f"1x{_MINUTES}"
GROWING = f"20000+10x{_MINUTES}"


def test_rules_about_lag_leave_out_what_is_paused() -> None:
    """Ingresses and the whole application, as far as this shows without promtool."""
    [group] = yaml.safe_load(ALERTS.read_text())["groups"]
    texts = [rule["expr"] for rule in group["rules"] if "ingress_lag" in rule["expr"]]

    assert texts
    for text in texts:
        assert 'statefun_paused{kind="ingress"}' in text
        assert 'statefun_paused{kind="application"}' in text


def test_an_idle_application_is_no_alarm(firing: Firing) -> None:
    """It commits nothing, as there is nothing to do."""
    assert firing(application()) == set()


@pytest.mark.parametrize("waiting", ["ingress_lag_records", "backlog_messages"])
def test_records_and_messages_that_wait_for_long_are_an_alarm(firing: Firing, waiting: str) -> None:
    """Nothing is committed, though there is something to do."""
    assert firing(application(**{waiting: ALWAYS})) == {"StatefunMakesNoProgress"}


@pytest.mark.parametrize("part", ["ingress", "application"])
def test_what_is_paused_is_no_alarm(firing: Firing, part: str) -> None:
    """Its records wait, and become more, because a person wants it."""
    lag = {"ingress_lag_records": GROWING}

    assert firing(application(**lag)) == {"StatefunMakesNoProgress", "StatefunLagGrows"}
    assert firing(application(**lag, **{f"paused_{part}": ALWAYS})) == set()


def test_a_long_call_is_no_alarm(firing: Firing) -> None:
    """Its message is part of the backlog, and nothing need be committed before it ends; but records are to be read."""
    call = {"calls_under_way": ALWAYS, "backlog_messages": ALWAYS}

    assert firing(application(**call)) == set()
    assert firing(application(**call, ingress_lag_records=ALWAYS)) == {"StatefunMakesNoProgress"}
