# SPDX-License-Identifier: Apache-2.0
"""The folder in which a connector keeps its files in a checkpoint."""

from __future__ import annotations

from urllib.parse import quote

from statefun.runtime.checkpoint.folder import Folder
from statefun.sdk.address import TypeName
from statefun.sdk.errors import CheckpointError

_CONNECTORS = "connectors"


def connector_folder(checkpoint: Folder, id_: TypeName) -> Folder:
    """Return the folder of a checkpoint in which the connector of an ingress or egress keeps its files.

    >>> connector_folder(Folder("/checkpoint"), TypeName("example", "in")).location
    '/checkpoint/connectors/example%2Fin'
    """
    return checkpoint.child(_CONNECTORS).child(_name(id_))


def rename_connector_folder(checkpoint: Folder, former: TypeName, id_: TypeName) -> None:
    """Move the files of an ingress that gets another id; do the rest if a call before has not ended.

    An object store moves a file by copying it: a call that has crashed may leave equal files with both ids.

    Raises:
        CheckpointError: if the other id has such files already.
    """
    folders = checkpoint.child(_CONNECTORS)
    paths, present = (_files_of_ingress(checkpoint, each) for each in (former, id_))
    source, target = (connector_folder(checkpoint, each) for each in (former, id_))
    copied_paths = {path for path in paths & present if source.read(path) == target.read(path)}
    if paths & present != copied_paths:
        raise CheckpointError(
            f"{target.shown} has files already, which belong to another ingress; move "
            "them away if nobody needs them"
        )
    for path in sorted(copied_paths):
        source.remove(path)
    for path in sorted(paths - copied_paths):
        folders.move(f"{_name(former)}/{path}", f"{_name(id_)}/{path}")


def clear_connector_folder(checkpoint: Folder, id_: TypeName) -> None:
    """Delete the files of an ingress in its folder, but not those of an egress with the same id."""
    for path in sorted(_files_of_ingress(checkpoint, id_)):
        connector_folder(checkpoint, id_).remove(path)


def _files_of_ingress(checkpoint: Folder, id_: TypeName) -> set[str]:
    """Return the paths of an ingress's files in its folder; an egress with this id has files there for its lanes."""
    sizes = connector_folder(checkpoint, id_).sizes()
    return {path for path in sizes if path != "lanes" and not path.startswith("lane.")}


def _name(id_: TypeName) -> str:
    return quote(str(id_), safe="")
