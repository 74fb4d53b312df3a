# SPDX-License-Identifier: Apache-2.0
"""Loads all module files of an application as one `Module`."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from statefun.module.connectors import ConnectorEgress, ConnectorIngress
from statefun.module.file_formats import components
from statefun.module.kinds.catalogue import all_kinds
from statefun.module.location import Location
from statefun.module.model import (
    AnyComponent,
    Endpoint,
    KafkaEgress,
    KafkaIngress,
    Module,
    PlaygroundIngress,
    Unsupported,
)
from statefun.module.yaml.components import ID, Component
from statefun.module.yaml.config_maps import MODULE_KEYS
from statefun.module.yaml.nodes import MapNode, ScalarNode, compose, keys_of_config_maps
from statefun.module.yaml.problems import Invalid, Problems
from statefun.module.yaml.substitution import Substitution
from statefun.sdk.errors import DefinitionError, ModuleError
from statefun.sdk.shortening import shortened

T = TypeVar("T")

_EXPECTED = "expected a module file, YAML with the ingresses and egresses of the application"
_MOST_SHOWN = 200
"""The largest number of characters of a ConfigMap's keys that an error shows."""


def load_module_files(
    paths: Sequence[Path],
    environment: Mapping[str, str] | None = None,
    components: Sequence[KafkaIngress | KafkaEgress] = (),
) -> Module:
    """Read the components in all module files of an application.

    Args:
        paths: the files, in any of the documented formats.
        environment: the values of ``${NAME}``; by default the process's environment.
        components: ingresses and egresses that are declared in Python.

    Raises:
        ModuleError: if a file has a problem; the error lists the problems of all files.
    """
    loading = _Loading(environment)
    for path in paths:
        loading.read_file(path)
    for component in components:
        loading.add(component)
    return loading.module()


def parse_module(
    text: str, file: str = "module.yaml", environment: Mapping[str, str] | None = None
) -> Module:
    """Read the components in the text of a module file.

    >>> parse_module('''
    ... kind: io.statefun.kafka.v1/egress
    ... spec:
    ...   id: example/greetings
    ...   address: kafka:9092
    ... ''').egresses[0].address
    'kafka:9092'

    Args:
        text: YAML in any of the documented formats.
        file: the file name to give in error texts; paths in ``${file:path}`` are relative to the
            folder of this file.
        environment: the values of ``${NAME}``; by default the process's environment.

    Raises:
        ModuleError: if the text has a problem; the error lists all problems.
    """
    loading = _Loading(environment)
    loading.read_text(text, file)
    return loading.module()


class _Loading:
    """Collects the components and the problems of all module files."""

    def __init__(self, environment: Mapping[str, str] | None) -> None:
        self._environment = os.environ if environment is None else environment
        self._problems = Problems()
        self._files: dict[str, None] = {}
        self._parts: list[AnyComponent] = []
        self._ids: dict[tuple[str, str, str], Location] = {}

    def read_file(self, path: Path) -> None:
        """Read the components of a module file; report a file that is missing or unreadable."""
        file = str(path)
        try:
            text = path.read_text(encoding="utf-8-sig")
        except FileNotFoundError:
            self._report_file(file, f"there is no such file; {_EXPECTED}")
        except UnicodeDecodeError:
            self._report_file(file, f"is not UTF-8 text; {_EXPECTED}")
        except OSError as error:
            self._report_file(file, f"cannot be read: {error.strerror}; {_EXPECTED}")
        else:
            self.read_text(text, file)

    def _report_file(self, file: str, text: str) -> None:
        self._files[file] = None
        self._problems.report(Location(file, 1, 1), "", text)

    def read_text(self, text: str, file: str) -> None:
        """Read the components in all YAML documents of a text."""
        self._files[file] = None
        substitution = Substitution(self._environment, Path(file).parent)
        documents = compose(text, file, substitution, self._problems)
        if not documents:
            self._report_file(file, f"declares no component{_other_keys(text, file)}; {_EXPECTED}")
        for document in documents:
            for component in components(document, self._problems):
                self._read_component(component)

    def _read_component(self, component: Component) -> None:
        kind = all_kinds()[component.kind]
        if kind.group is not None:
            self._check_id(component, kind.group, kind.id_name)
        try:
            self._parts.append(kind.read(component, self._problems))
        except Invalid:
            return

    def add(self, component: KafkaIngress | KafkaEgress) -> None:
        """Add a component that is declared in Python."""
        if not isinstance(component, KafkaIngress | KafkaEgress):
            raise DefinitionError(
                f"{component!r} is neither an ingress nor an egress; if it is a builder, call its .build()"
            )
        self._files[component.location.file] = None
        group = "ingress" if isinstance(component, KafkaIngress) else "egress"
        id_ = str(component.id)
        self._add_id((group, ID.name, id_), repr(id_), component.location)
        self._parts.append(component)

    def _check_id(self, component: Component, group: str, id_name: str) -> None:
        node = component.spec.get(id_name) if isinstance(component.spec, MapNode) else None
        if isinstance(node, ScalarNode):
            key = (group, id_name, node.text.strip())
            self._add_id(key, node.quoted, node.location, node.path)

    def _add_id(
        self, key: tuple[str, str, str], quoted: str, location: Location, path: str = ""
    ) -> None:
        if key in self._ids:
            first = self._ids[key]
            text = f"duplicate {key[0]} {key[1]} {quoted}; it is first declared at {first}"
            self._problems.report(location, path, text)
        self._ids.setdefault(key, location)

    def module(self) -> Module:
        """Return the module with all components.

        Raises:
            ModuleError: if any problem was reported.
        """
        problems = self._problems.in_file_order(self._files)
        if problems:
            raise ModuleError(problems)
        return Module(
            ingresses=self._of(KafkaIngress),
            egresses=self._of(KafkaEgress),
            endpoints=self._of(Endpoint),
            connector_ingresses=self._of(ConnectorIngress),
            connector_egresses=self._of(ConnectorEgress),
            playground_ingresses=self._of(PlaygroundIngress),
            unsupported=self._of(Unsupported),
        )

    def _of(self, kind: type[T]) -> tuple[T, ...]:
        return tuple(part for part in self._parts if isinstance(part, kind))


def _other_keys(text: str, file: str) -> str:
    """Return why the ConfigMaps in a text have no module file; empty if they have one, or there are none."""
    keys = keys_of_config_maps(text, file)
    if not keys or any(each.startswith("data.") and each.endswith(MODULE_KEYS) for each in keys):
        return ""
    ends, shown = " or ".join(MODULE_KEYS), shortened(", ".join(map(repr, keys)), _MOST_SHOWN)
    return f": of a ConfigMap, the keys of data that end with {ends} are module files, and the keys are {shown}"
