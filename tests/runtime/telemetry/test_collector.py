# SPDX-License-Identifier: Apache-2.0
"""Requests to a collector, and what becomes of them if it does not take them."""

from __future__ import annotations

import logging
import threading
import time
from datetime import timedelta
from urllib.parse import quote

import pytest
from local_servers import free_port
from opentelemetry.sdk.metrics.export import Gauge, Metric, MetricsData, NumberDataPoint
from opentelemetry.sdk.metrics.export import ResourceMetrics as OfResource
from opentelemetry.sdk.metrics.export import ScopeMetrics as OfScope
from otlp_receiver import Receiver, attributes, receiving

from statefun.runtime.telemetry.collector import Collector
from statefun.runtime.telemetry.resource import application_resource, own_scope
from statefun.sdk.errors import ConfigurationError

SECRET = "Bearer a-token-of-some-length"  # noqa: S105 - it guards nothing


def some() -> MetricsData:
    """Return one value of one metric."""
    metric = Metric("a.b", "what", "s", Gauge([NumberDataPoint({}, 0, time.time_ns(), 1.5)]))
    resource = application_resource("greeter")
    return MetricsData([OfResource(resource, [OfScope(own_scope(), [metric], "")], "")])


def warnings_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return the texts of all warnings, and forget them."""
    texts = [each.getMessage() for each in caplog.records if each.levelno >= logging.WARNING]
    caplog.clear()
    return texts


def test_metrics_arrive_with_the_headers_of_the_environment(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The application has the name that it is given, and secrets are only in headers."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", f"authorization={SECRET.replace(' ', '%20')}")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip")
    caplog.set_level(logging.DEBUG)
    with receiving() as receiver:
        collector = Collector(receiver.url)
        assert collector.metrics.send(some())
        collector.close()

    assert receiver.headers[0]["authorization"] == SECRET
    assert receiver.headers[0]["content-encoding"] == "gzip"
    resource = receiver.metrics[0].resource_metrics[0]
    assert attributes(resource.resource.attributes)["service.name"] == "greeter"
    assert resource.scope_metrics[0].scope.name == "statefun"
    assert SECRET not in caplog.text


def test_the_environment_names_the_service(monkeypatch: pytest.MonkeyPatch) -> None:
    """As OpenTelemetry's own programs do."""
    monkeypatch.setenv("OTEL_SERVICE_NAME", "other")
    monkeypatch.setenv(
        "OTEL_RESOURCE_ATTRIBUTES", "service.version=3,deployment.environment.name=x"
    )

    found = application_resource("greeter").attributes

    assert (found["service.name"], found["service.version"]) == ("other", "3")
    assert found["deployment.environment.name"] == "x"


def test_a_malformed_header_is_not_repeated(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It may be a secret."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", SECRET)

    Collector("http://127.0.0.1:1").close()

    assert SECRET not in caplog.text
    assert "OTEL_EXPORTER_OTLP_HEADERS has an entry" in caplog.text


def test_a_header_with_a_line_end_is_refused_and_not_repeated(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Tools wrap base64 after 76 characters, and the client's error would repeat the whole header."""
    header = f"authorization={quote(SECRET)}%0A{quote(SECRET)}"
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_HEADERS", header)

    with pytest.raises(ConfigurationError, match="line end") as caught:
        Collector("http://127.0.0.1:1")

    assert SECRET not in str(caught.value)
    assert "'authorization' of OTEL_EXPORTER_OTLP_TRACES_HEADERS" in str(caught.value)


def test_what_the_environment_gets_wrong_is_an_error_with_a_code(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Such as the name of a provider of credentials that is not installed."""
    monkeypatch.setenv("OTEL_PYTHON_EXPORTER_OTLP_HTTP_CREDENTIAL_PROVIDER", "nobody")

    with pytest.raises(ConfigurationError, match=r"\[SF100\] the environment variables OTEL_\*"):
        Collector("http://127.0.0.1:1")


def test_a_collector_that_refuses_is_told_of_once(caplog: pytest.LogCaptureFixture) -> None:
    """Until it takes something again."""
    caplog.set_level(logging.INFO)
    with receiving() as receiver:
        receiver.status = 401
        collector = Collector(receiver.url)
        assert not collector.metrics.send(some())
        assert not collector.metrics.send(some())
        (told,) = warnings_of(caplog)
        receiver.status = 200
        assert collector.metrics.send(some())
        assert f"metrics to {receiver.url} can be sent again" in caplog.text
        receiver.status = 401
        assert not collector.metrics.send(some())
        collector.close()

    assert told.startswith(f"metrics to {receiver.url} cannot be sent, and are dropped")
    assert "401" in told
    assert not warnings_of(caplog)


def test_each_warning_is_due_after_a_while(caplog: pytest.LogCaptureFixture) -> None:
    """A collector that stays away is not forgotten."""
    with receiving() as receiver:
        receiver.status = 400
        collector = Collector(receiver.url, timedelta(0))
        for _ in range(2):
            assert not collector.metrics.send(some())
        collector.close()

    assert len(warnings_of(caplog)) == 2


def test_a_collector_that_is_not_there_is_given_up(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """After the time that OpenTelemetry's variable says; the warning has the reason."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "2")
    collector = Collector(f"http://127.0.0.1:{free_port()}")
    assert not collector.metrics.send(some())
    collector.close()

    (told,) = warnings_of(caplog)
    assert "refused" in told


def test_closing_ends_an_attempt_that_waits() -> None:
    """Whoever ends the application does not wait for the next attempt."""
    with receiving() as receiver:
        receiver.status = 503
        collector = Collector(receiver.url)
        results: list[bool] = []
        thread = threading.Thread(target=lambda: results.append(collector.metrics.send(some())))
        thread.start()
        _wait_until_seen(receiver)
        collector.close()
        thread.join()

    assert results == [False]


def _wait_until_seen(receiver: Receiver) -> None:
    while not receiver.seen:
        time.sleep(0.01)
