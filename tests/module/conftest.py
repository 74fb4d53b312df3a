# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Callable

import pytest

from statefun.module.loader import parse_module
from statefun.module.model import KafkaEgress, KafkaIngress
from statefun.sdk.errors import ModuleError

INGRESS = """\
kind: io.statefun.kafka.v1/ingress
spec:
  id: example/in
  address: kafka:9092
  consumerGroupId: group
  topics:
    - topic: names
      valueType: example/Name
      targets:
        - example/greeter
"""
EGRESS = """\
kind: io.statefun.kafka.v1/egress
spec:
  id: example/out
  address: kafka:9092
"""


def _without(text: str, key: str) -> str:
    return "".join(line for line in text.splitlines(keepends=True) if f"  {key}: " not in line)


@pytest.fixture
def ingress_text() -> Callable[..., str]:
    """Makes a minimal ingress with further lines, or with one line less."""

    def make(more: str = "", without: str = " ") -> str:
        return _without(INGRESS, without) + more

    return make


@pytest.fixture
def egress_text() -> Callable[..., str]:
    """Makes a minimal egress with further lines, or with one line less."""

    def make(more: str = "", without: str = " ") -> str:
        return _without(EGRESS, without) + more

    return make


@pytest.fixture
def read_ingress(ingress_text: Callable[..., str]) -> Callable[..., KafkaIngress]:
    """Parses a document of `ingress_text`."""

    def read(more: str = "", without: str = " ") -> KafkaIngress:
        [ingress] = parse_module(ingress_text(more, without), environment={}).ingresses
        return ingress

    return read


@pytest.fixture
def read_egress(egress_text: Callable[..., str]) -> Callable[..., KafkaEgress]:
    """Parses a document of `egress_text`."""

    def read(more: str = "", without: str = " ") -> KafkaEgress:
        [egress] = parse_module(egress_text(more, without), environment={}).egresses
        return egress

    return read


@pytest.fixture
def findings() -> Callable[..., list[str]]:
    """Parses a text that has problems, and lists them."""

    def parse(text: str, **environment: str) -> list[str]:
        with pytest.raises(ModuleError) as raised:
            parse_module(text, "m.yaml", environment)
        return [str(problem) for problem in raised.value.problems]

    return parse
