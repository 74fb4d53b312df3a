# SPDX-License-Identifier: Apache-2.0
"""Records through transforms, against records as they are: the CPU until a function has the value."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from datetime import datetime, timezone
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from report import Case, alternate, report

from statefun.module.loader import parse_module
from statefun.module.topic_routes import TopicRoute
from statefun.module.transforming import transformed_id
from statefun.module.value_types import register_types
from statefun.sdk.encoding import encoded
from statefun.sdk.record import EncodedRecord, KafkaRecord
from statefun.sdk.types import default_types

if TYPE_CHECKING:
    from statefun.module.topic_routes import Deserializer
    from statefun.sdk.types import Type
    from statefun.transforms.chain import Chain

MODULE = """\
kind: io.statefun.kafka.v1/ingress
spec:
  id: benchmark/in
  address: localhost:1
  startupPosition: {{type: earliest}}
  topics:
    - topic: users
      valueType: benchmark/User
      valueFormat: {{type: json}}
      targets: [benchmark/users]
      transforms: [{}]
"""
TRANSFORMS = {
    "mask": ("{type: MaskField$Value, fields: card}",),
    "mask, cast, leave out": (
        "{type: MaskField$Value, fields: card}",
        "{type: Cast$Value, spec: 'count:int32'}",
        "{type: ReplaceField$Value, exclude: tags}",
    ),
    "flatten": ("{type: Flatten$Value}",),
}
VALUE = json.dumps(
    {
        "id": 7,
        "name": "Ada Lovelace",
        "card": "1234-5678",
        "count": "12",
        "address": {"city": "London", "zip": "N1"},
        "tags": ["a", "b"],
    }
).encode()
RECORD = KafkaRecord(b"k", VALUE, "users", 0, 1, datetime(2026, 1, 1, tzinfo=timezone.utc), ())
ROUNDS = 20_000


def route(*transforms: str) -> TopicRoute:
    """Return the route of a topic with transforms."""
    module = parse_module(MODULE.format(", ".join(transforms)))
    for _, problem in register_types(module):
        raise RuntimeError(problem)
    return module.ingresses[0].topics[0]


def decoder() -> Callable[[bytes], Any]:
    """Return what decodes the values that functions get."""
    return cast("Type[Any]", default_types.find("benchmark/User")).serializer().deserialize


def plain() -> float:
    """Return the CPU time in which a value is decoded."""
    decode = decoder()
    begin = time.process_time()
    for _ in range(ROUNDS):
        decode(VALUE)
    return (time.process_time() - begin) / ROUNDS


def transformed(topic: TopicRoute) -> float:
    """Return the CPU time in which a value is transformed and decoded."""
    decode, made = decoder(), cast("Deserializer", topic.deserializer)
    begin = time.process_time()
    for _ in range(ROUNDS):
        decode(encoded(made.read(RECORD), made.value_type).value)
    return (time.process_time() - begin) / ROUNDS


def keyed(topic: TopicRoute) -> float:
    """Return the CPU time in which an id is made of a value."""
    chain = cast("Chain", topic.chain)
    begin = time.process_time()
    for _ in range(ROUNDS):
        transformed_id(chain, EncodedRecord("users", 0, 1, 2, b"k", VALUE))
    return (time.process_time() - begin) / ROUNDS


def main() -> None:
    """Compare some transforms with none."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=9)
    runs = parser.parse_args().runs
    cases = [
        Case(f"{name}: vs none", "s", *alternate(runs, partial(transformed, route(*of)), plain))
        for name, of in TRANSFORMS.items()
    ]
    by_id = route("{type: ValueToKey, fields: id}", "{type: ExtractField$Key, field: id}")
    cases.append(
        Case("an id of a value: vs none", "s", *alternate(runs, partial(keyed, by_id), plain))
    )
    report("transforms", cases)


if __name__ == "__main__":
    main()
