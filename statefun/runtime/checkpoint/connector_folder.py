# SPDX-License-Identifier: Apache-2.0
"""The folder in which a connector keeps its files in a checkpoint."""

from __future__ import annotations

from urllib.parse import quote

from statefun.runtime.checkpoint.folder import Folder
from statefun.sdk.address import TypeName

_CONNECTORS = "connectors"


def connector_folder(checkpoint: Folder, id_: TypeName) -> Folder:
    """Return the folder of a checkpoint in which the connector of an ingress or egress keeps its files.

    >>> connector_folder(Folder("/checkpoint"), TypeName("example", "in")).location
    '/checkpoint/connectors/example%2Fin'
    """
    return checkpoint.child(_CONNECTORS).child(_name(id_))


def rename_connector_folder(checkpoint: Folder, former: TypeName, id_: TypeName) -> None:
    """Rename the folder of an ingress or egress that gets another id; do nothing if that is done already."""
    folders = checkpoint.child(_CONNECTORS)
    if folders.has(_name(former)) and not folders.has(_name(id_)):
        folders.move(_name(former), _name(id_))


def _name(id_: TypeName) -> str:
    return quote(str(id_), safe="")
