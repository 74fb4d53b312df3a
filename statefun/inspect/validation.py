# SPDX-License-Identifier: Apache-2.0
"""Checks the program and the module files of an application, and collects all of their problems."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import attrs

from statefun.engine.program import Program
from statefun.module.binding import NO_INGRESS, binding_problems
from statefun.module.findings import Finding, warnings_of, warnings_of_use
from statefun.module.loader import load_module_files
from statefun.module.location import Location
from statefun.module.model import KafkaEgress, KafkaIngress, Module
from statefun.module.user_program import UserProgram, line_in, load_program
from statefun.module.value_types import register_types
from statefun.remote.endpoint_functions import taken_names, with_free_endpoints
from statefun.sdk.errors import (
    ConfigurationError,
    ModuleError,
    PlatformError,
    StatefunError,
)
from statefun.sdk.flaws import collecting_flaws
from statefun.sdk.functions import StatefulFunctions


@attrs.define
class Validation:
    """The result of :func:`validate`: the parts of an application, and the problems of all parts."""

    findings: list[Finding] = attrs.Factory(list)
    module: Module | None = None
    """The module that the files declare; None if they cannot be read or have problems."""
    functions: StatefulFunctions | None = None
    """The functions that the program registers; None if no program was given, or it has errors."""

    @property
    def is_valid(self) -> bool:
        """Whether no error was found, so that the application can start."""
        return not any(finding.is_error for finding in self.findings)


def validate(app: Path | None, modules: Sequence[Path]) -> Validation:
    """Check the program and the module files of an application, without running it.

    Args:
        app: the program that registers functions, and may declare ingresses and egresses in
            variables; without a program, only the module files are checked.
        modules: the module files; if none are given, ``module.yaml`` in the program's folder.
    """
    validation = Validation()
    findings = validation.findings
    program = None if app is None else _load_program(app, validation)
    components = () if program is None else program.components
    try:
        module = validation.module = _load(app, modules, components)
    except ModuleError as error:
        findings.extend(map(Finding, error.problems))
        return validation
    findings.extend(warnings_of(module))
    findings.extend(Finding.at(*problem) for problem in register_types(module))
    if program is not None and validation.functions is not None:
        findings.extend(Finding.at(*taken) for taken in taken_names(validation.functions, module))
        validation.functions = with_free_endpoints(validation.functions, module)
        for location, text in binding_problems(module, validation.functions):
            findings.append(Finding.at(location, text))
        if not module.has_ingress:
            findings.append(Finding.at(None, NO_INGRESS))
        findings.extend(warnings_of_use(module, validation.functions, program.text()))
        # It needs PySpark, for which other commands that import this module would wait.
        from statefun.runtime.dispatch.payload import Payload  # noqa: PLC0415 - see above

        try:
            Payload.of(Program.of(validation.functions, module))
        except PlatformError as error:
            findings.append(Finding.at(Location(str(app), 1, 1), str(error)))
    return validation


def program_and_modules(files: Sequence[Path]) -> tuple[Path | None, list[Path]]:
    """Divide files into the program (None if no file ends with ``.py``) and the module files.

    Raises:
        ConfigurationError: if more than one file ends with ``.py``.
    """
    apps = [file for file in files if file.suffix == ".py"]
    if len(apps) > 1:
        raise ConfigurationError(
            f"give at most one program (a file that ends with .py), not {len(apps)}"
        )
    return apps[0] if apps else None, [file for file in files if file not in apps]


def _load_program(app: Path, validation: Validation) -> UserProgram | None:
    """Load a program, and add its errors to the findings of a validation; return None if it cannot be loaded."""
    problem, program = None, None
    with collecting_flaws() as flaws:
        try:
            program = load_program(app)
        except StatefunError as error:
            line = line_in(str(app), error, 0) or line_in(str(app), error.__cause__ or error)
            problem = Finding.at(Location(str(app), line, 1), str(error))
    validation.findings += [
        Finding.at(Location(flaw.file, flaw.line, flaw.column), str(flaw.error)) for flaw in flaws
    ]
    if problem is not None:
        validation.findings.append(problem)
    if program is not None and not flaws:
        validation.functions = program.functions
    return program


def declared_module(app: Path | None, modules: Sequence[Path]) -> Module:
    """Return the module that a program and module files declare, for commands that do not validate.

    Raises:
        StatefunError: if the program or a module file cannot be loaded, or has problems.
    """
    components = () if app is None else load_program(app).components
    return _load(app, modules, components)


def _load(
    app: Path | None, modules: Sequence[Path], components: Sequence[KafkaIngress | KafkaEgress]
) -> Module:
    files = list(modules) or [(app.parent if app else Path()) / "module.yaml"]
    if components and not modules:
        files = [file for file in files if file.exists()]
    return load_module_files(files, components=components)
