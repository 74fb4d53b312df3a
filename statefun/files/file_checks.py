# SPDX-License-Identifier: Apache-2.0
"""Checks, before a start, that an ingress can read its files and an egress can write to its folder."""

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
    """Yield a text for each problem that keeps an ingress from reading its files."""
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
                yield f"{settings.owner}: no permission to read folder {folder}"
            elif file.exists() and not os.access(file, os.R_OK):
                yield f"{settings.owner}: no permission to read file {file}"


def check_egress(egress: ConnectorEgress, timeout: timedelta) -> Iterator[str]:
    """Yield a text for each problem that keeps an egress from writing into its folder.

    A missing folder is no problem: the first record creates it.

    Raises:
        ConfigurationError: if pyarrow does not know the file system of the folder.
    """
    del timeout
    settings: EgressFiles = egress.settings
    folder = Folder.at(settings.folder)
    if folder.is_local:
        path = Path(folder.location)
        existing_path = next(each for each in (path, *path.parents) if each.exists())
        if not existing_path.is_dir():
            yield f"{settings.owner}: {existing_path} must be a folder, but is a file"
        elif not os.access(existing_path, os.W_OK | os.X_OK):
            yield f"{settings.owner}: no permission to write to folder {existing_path}"
        return
    try:
        folder.exists()
    except OSError as error:
        yield f"{settings.owner}: folder {identity_of(folder.location)} cannot be reached: {error}"
