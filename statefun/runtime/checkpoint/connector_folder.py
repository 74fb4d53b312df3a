# SPDX-License-Identifier: Apache-2.0
"""Where a checkpoint has what a connector keeps."""

from __future__ import annotations

from urllib.parse import quote

from statefun.runtime.checkpoint.folder import Folder
from statefun.sdk.address import TypeName


def connector_folder(checkpoint: Folder, id_: TypeName) -> Folder:
    """Return the folder of an ingress or egress in a checkpoint.

    >>> connector_folder(Folder("/checkpoint"), TypeName("example", "in")).location
    '/checkpoint/connectors/example%2Fin'
    """
    return checkpoint.child("connectors").child(quote(str(id_), safe=""))
