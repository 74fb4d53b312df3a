# SPDX-License-Identifier: Apache-2.0
"""A server of S3's protocol, and the checkpoints of tests in it.

moto is quick to install, and right; versitygw is ten times faster, and takes minutes to build, so that it is used where
someone has built it: ``GOBIN=~/.cache/statefun/servers go install github.com/versity/versitygw/cmd/versitygw@v1.8.0``.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import attrs
import boto3
from local_servers import connected, free_port

from statefun.runtime.checkpoint.folder import Folder
from statefun.runtime.spark.jars import cache_folder

BUCKET = "tests"
_KEY, _SECRET = "tests", "not a secret"


@attrs.frozen
class ObjectStore:
    """A running server with one bucket."""

    port: int

    def location(self, path: str, *, port: int | None = None) -> str:
        """Return the URI of a folder in the bucket.

        Args:
            path: the path of the folder.
            port: that of a proxy to the server.
        """
        return (
            f"s3a://{BUCKET}/{path}?endpoint_override=127.0.0.1:{port or self.port}&scheme=http&region=us-east-1"
            f"&access_key={_KEY}&secret_key={_SECRET.replace(' ', '%20')}"
        )

    def folder(self, path: str) -> Folder:
        """Return a folder in the bucket."""
        return Folder.at(self.location(path))


@contextmanager
def object_store(folder: Path) -> Iterator[ObjectStore]:
    """Serve an empty bucket during the block; ``folder`` is for the server's files."""
    port = free_port()
    gateway = cache_folder() / "servers" / "versitygw"
    if gateway.exists():
        (folder / "objects").mkdir()
        command = [str(gateway), "--port", f"127.0.0.1:{port}", "posix", str(folder / "objects")]
    else:
        command = [sys.executable, str(Path(__file__).with_name("moto_process.py")), str(port)]
    environment = {**os.environ, "ROOT_ACCESS_KEY": _KEY, "ROOT_SECRET_KEY": _SECRET}
    with (folder / "server.log").open("w") as log:
        server = subprocess.Popen(command, stdout=log, stderr=log, text=True, env=environment)
    try:
        connected(port, server).close()
        boto3.client(
            "s3",
            endpoint_url=f"http://127.0.0.1:{port}",
            region_name="us-east-1",
            aws_access_key_id=_KEY,
            aws_secret_access_key=_SECRET,
        ).create_bucket(Bucket=BUCKET)
        yield ObjectStore(port)
    finally:
        server.kill()
        server.wait()
