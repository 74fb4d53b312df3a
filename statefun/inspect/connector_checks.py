# SPDX-License-Identifier: Apache-2.0
"""Asks connectors, before a start, whether their ingresses and egresses can run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pkgutil import resolve_name

from statefun.inspect.validation import Finding
from statefun.module.connectors import ConnectorEgress, ConnectorIngress
from statefun.module.model import Module
from statefun.sdk.errors import StatefunError
from statefun.sdk.raised import line_of


def connector_findings(module: Module, timeout: timedelta) -> Iterator[Finding]:
    """Run the checkers of all connectors in parallel.

    Args:
        module: the ingresses and egresses to check.
        timeout: how long a server may take to answer.
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
