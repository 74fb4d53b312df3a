# SPDX-License-Identifier: Apache-2.0
"""Looks whether the folders of an ingress or egress can be used, before anything is read or written."""

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
    """Yield what keeps an ingress from reading its files."""
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
    """Yield what keeps an egress from writing into its folder, which is made with the first record.

    Raises:
        ConfigurationError: if pyarrow knows no such file system.
    """
    del timeout
    settings: EgressFiles = egress.settings
    folder = Folder.at(settings.folder)
    if folder.is_local:
        path = Path(folder.location)
        there = next(each for each in (path, *path.parents) if each.exists())
        if not there.is_dir():
            yield f"{settings.owner}: {there} is a file, and no folder"
        elif not os.access(there, os.W_OK | os.X_OK):
            yield f"{settings.owner}: nothing may be written into {there}"
        return
    try:
        folder.exists()
    except OSError as error:
        yield f"{settings.owner}: folder {identity_of(folder.location)} cannot be reached: {error}"
