# SPDX-License-Identifier: Apache-2.0
"""How ingresses and egresses are declared in module files."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

from statefun import DefinitionError, EgressMessage, KafkaEgressMessage
from statefun.components import (
    FAILURE_POLICY,
    ID,
    Component,
    ConnectorEgress,
    ConnectorIngress,
    Key,
    Kind,
    Problems,
    Shape,
    plain_route,
    routes,
    text,
)

from .database import Tables

FILE = Key(
    "file", text, "the database, relative to the module file", required=True, example="shop.sqlite"
)
TABLE = Key("table", text, "the name of the table", required=True, example="orders")
TABLES = Key("tables", routes(plain_route(TABLE), TABLE.name), "the tables to read", required=True)
ID_COLUMN = Key(
    "idColumn", text, "the column whose value is the id", required=True, example="customer"
)
INGRESS = Shape((ID, FILE, TABLES, ID_COLUMN, FAILURE_POLICY))
EGRESS = Shape((ID, FILE, TABLE))


def read_ingress(component: Component, problems: Problems) -> ConnectorIngress:
    """Read an ingress."""
    values = INGRESS.read(component.spec, problems)
    names = tuple(route.topic for route in values[TABLES])
    return ConnectorIngress(
        id=values[ID],
        kind=component.kind,
        topics=values[TABLES],
        location=component.location,
        reader="sqlite_tables.reading:read_tables",
        checker="sqlite_tables.database:check_tables",
        settings=Tables(_path(component, values[FILE]), names, values[ID_COLUMN]),
        failure_policy=values.get(FAILURE_POLICY),
    )


def read_egress(component: Component, problems: Problems) -> ConnectorEgress:
    """Read an egress."""
    values = EGRESS.read(component.spec, problems)
    file, table = _path(component, values[FILE]), values[TABLE]
    return ConnectorEgress(
        id=values[ID],
        kind=component.kind,
        location=component.location,
        writer="sqlite_tables.writing:write_table",
        checker="sqlite_tables.database:check_tables",
        address=file,
        convert=partial(row_record, table),
        settings=Tables(file, (table,)),
        is_exactly_once=True,
    )


def row_record(table: str, message: EgressMessage) -> KafkaEgressMessage:
    """Return the record that the outbox keeps of a row; its topic is the table.

    Raises:
        DefinitionError: if the value is no row, which is the failure of the function that sends it.
    """
    try:
        row = json.loads(message.raw_value())
    except ValueError:
        row = None
    if not isinstance(row, dict) or any(isinstance(value, dict | list) for value in row.values()):
        raise DefinitionError(
            f"a row for egress {message.typename} is a JSON object of texts and numbers; send a "
            "value of a JSON type, such as of a dataclass"
        )
    return KafkaEgressMessage(message.typename, topic=table, value=message.raw_value())


def _path(component: Component, file: str) -> str:
    return str(Path(component.location.file).resolve().parent / file)


KINDS = (
    Kind("com.example.sqlite.v1/ingress", read_ingress, INGRESS, "ingress"),
    Kind("com.example.sqlite.v1/egress", read_egress, EGRESS, "egress"),
)
