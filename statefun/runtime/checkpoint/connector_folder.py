# SPDX-License-Identifier: Apache-2.0
"""The folder in which a connector keeps its files in a checkpoint."""

from __future__ import annotations

from urllib.parse import quote

from statefun.runtime.checkpoint.folder import Folder
from statefun.sdk.address import TypeName


def connector_folder(checkpoint: Folder, id_: TypeName) -> Folder:
    """Return the folder of a checkpoint in which the connector of an ingress or egress keeps its files.

    >>> connector_folder(Folder("/checkpoint"), TypeName("example", "in")).location
    '/checkpoint/connectors/example%2Fin'
    """
    return checkpoint.child("connectors").child(quote(str(id_), safe=""))
