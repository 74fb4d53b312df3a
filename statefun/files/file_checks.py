# SPDX-License-Identifier: Apache-2.0
"""Checks that the folders of an ingress or egress can be used, before anything is read or written."""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

from statefun.components import ConnectorEgress, ConnectorIngress
from statefun.components.running import Folder
from statefun.files.file_settings import EgressFiles, IngressFiles
from statefun.files.path_identity import identity_of
from statefun.files.places import checked_place
from statefun.sdk.errors import StatefunError


def check_ingress(ingress: ConnectorIngress, timeout: timedelta) -> Iterator[str]:
    """Yield the problems that keep an ingress from reading its files."""
    del timeout
    settings: IngressFiles = ingress.settings
    for files in settings.files.values():
        try:
            place = checked_place(settings.owner, files.path)
        except StatefunError as error:
            yield str(error)
            continue
        if place.folder.is_local:
            folder = Path(place.folder.location)
            file = folder / place.name
            if not os.access(folder, os.R_OK | os.X_OK):
                yield f"{settings.owner}: folder {folder} may not be read"
            elif file.exists() and not os.access(file, os.R_OK):
                yield f"{settings.owner}: file {file} may not be read"


def check_egress(egress: ConnectorEgress, timeout: timedelta) -> Iterator[str]:
    """Yield the problems that keep an egress from writing into its folder.

    The folder need not exist: the first record creates it.

    Raises:
        ConfigurationError: if pyarrow knows no such file system.
    """
    del timeout
    settings: EgressFiles = egress.settings
    folder = Folder.at(settings.folder)
    if folder.is_local:
        path = Path(folder.location)
        existing_path = next(each for each in (path, *path.parents) if each.exists())
        if not existing_path.is_dir():
            yield f"{settings.owner}: {existing_path} is a file, and not a folder"
        elif not os.access(existing_path, os.W_OK | os.X_OK):
            yield f"{settings.owner}: folder {existing_path} may not be written to"
        return
    try:
        folder.exists()
    except OSError as error:
        yield f"{settings.owner}: folder {identity_of(folder.location)} cannot be reached: {error}"
