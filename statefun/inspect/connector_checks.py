# SPDX-License-Identifier: Apache-2.0
"""Runs, before a start, the checks that connectors have for their ingresses and egresses."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pkgutil import resolve_name

from statefun.module.connectors import ConnectorEgress, ConnectorIngress
from statefun.module.findings import Finding
from statefun.module.model import Module
from statefun.sdk.errors import StatefunError
from statefun.sdk.raised import line_of


def connector_findings(module: Module, timeout: timedelta) -> Iterator[Finding]:
    """Yield the problems that the checkers of all connector components find; they run in parallel.

    Args:
        module: the module whose ingresses and egresses are checked.
        timeout: how long a checker may wait for a server.
    """

    def check_component(component: ConnectorIngress | ConnectorEgress) -> list[Finding]:
        if component.checker is None:
            return []
        texts: list[str] = []
        try:
            check: Callable[..., Iterable[str]] = resolve_name(component.checker)
            texts.extend(check(component, timeout))
        except StatefunError as error:
            texts.append(str(error))
        except Exception as error:  # noqa: BLE001 - other packages' code may raise any exception
            what = f"{component.kind} {component.id}"
            texts.append(f"{what} cannot be checked: {line_of(error)}")
        return [Finding.at(component.location, text) for text in texts]

    with ThreadPoolExecutor() as threads:
        components = (*module.connector_ingresses, *module.connector_egresses)
        for findings in threads.map(check_component, components):
            yield from findings
