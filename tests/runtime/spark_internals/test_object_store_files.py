# SPDX-License-Identifier: Apache-2.0
"""The class with which Spark writes its logs and state files into an object store."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import PurePosixPath
from typing import Any

import pytest
from object_store import ObjectStore
from pyspark import SparkContext
from store_proxy import Fault, store_proxy

from statefun.runtime.checkpoint.folder import Folder
from statefun.runtime.spark.session import open_session, use_checkpoint
from statefun.runtime.spark_internals.jvm import JvmError, jvm
from statefun.runtime.spark_internals.log_files import run_of_commit

pytestmark = pytest.mark.spark

RUN = "run-1"


class Files:
    """The files of a folder, as Spark accesses them."""

    def __init__(self, folder: Folder) -> None:
        session = open_session(debug=False, state_partitions=1)
        use_checkpoint(session, folder, RUN)
        self._packages: Any = jvm()
        self._root = folder.spark_uri
        loader = self._packages.java.lang.Thread.currentThread().getContextClassLoader()
        kind = loader.loadClass(session.conf.get("spark.sql.streaming.checkpointFileManagerClass"))
        configuration: Any = session._jsparkSession.sessionState().newHadoopConf()  # noqa: SLF001 - as Spark makes it
        self.java = next(iter(kind.getConstructors())).newInstance(
            array(self.path(""), configuration)
        )

    def path(self, name: str) -> Any:
        """Return the path of a file, as Spark names it."""
        return self._packages.org.apache.hadoop.fs.Path(f"{self._root}/{name}")

    def write(self, name: str, content: bytes, *, overwrite: bool) -> None:
        """Write a file as Spark does."""
        stream = self.java.createAtomic(self.path(name), overwrite)
        stream.write(content)
        stream.close()

    def names(self, folder: str) -> list[str]:
        """Return the names of the files in a folder."""
        every = self._packages.org.apache.hadoop.fs.GlobFilter("*")
        found = self.java.list(self.path(folder), every)
        return sorted(PurePosixPath(each.getPath().toString()).name for each in found)


def array(*items: Any) -> Any:
    """Return an array of Java objects."""
    gateway: Any = SparkContext._gateway  # noqa: SLF001 - Py4J makes arrays only there
    made = gateway.new_array(jvm().java.lang.Object, len(items))
    for index, item in enumerate(items):
        made[index] = item
    return made


@pytest.fixture
def files(store: Folder) -> Files:
    """Return the files of an empty folder in a store."""
    return Files(store)


def test_a_file_of_a_log_is_created_once(files: Files, store: Folder) -> None:
    """A second writer is refused, unless it writes the same; the first content stays."""
    files.write("offsets/0", b"v1\nfirst", overwrite=False)
    files.write("offsets/0", b"v1\nfirst", overwrite=False)
    with pytest.raises(JvmError, match="FileAlreadyExistsException"):
        files.write("offsets/0", b"v1\nsecond", overwrite=False)

    assert store.child("offsets").read("0") == b"v1\nfirst"


def test_a_file_that_may_be_replaced_is_replaced(files: Files, store: Folder) -> None:
    """A file that is cancelled before its end is not there."""
    for content in (b"first", b"second"):
        files.write("state/0/0/1.changelog", content, overwrite=True)
    files.java.createAtomic(files.path("state/0/0/2.changelog"), True).cancel()

    assert store.child("state/0/0").read("1.changelog") == b"second"
    assert files.names("state/0/0") == ["1.changelog"]


def test_a_commit_names_its_run(files: Files, store: Folder) -> None:
    """Spark's own fields stay as they are."""
    files.write("commits/0", b'v1\n{"nextBatchWatermarkMs":0}', overwrite=False)

    content = store.child("commits").read("0")
    assert run_of_commit(content, "commits/0") == RUN
    assert json.loads(content.splitlines()[1])["nextBatchWatermarkMs"] == 0


def test_files_are_found_by_their_names(files: Files) -> None:
    """A missing folder is an empty one, and what is deleted is gone; deleting it again changes nothing."""
    assert files.names("offsets") == []
    files.write("offsets/0", b"v1", overwrite=False)
    assert files.java.exists(files.path("offsets/0"))
    assert files.java.exists(files.path("offsets"))

    for _ in range(2):
        files.java.delete(files.path("offsets/0"))

    assert not files.java.exists(files.path("offsets/0"))


@pytest.mark.takes(minutes=0.5)
def test_a_swallowed_request_is_tried_again(store: Folder, store_server: ObjectStore) -> None:
    """Its connection stays open and silent for ever; by default, Hadoop waits for a minute."""
    with store_proxy(store_server.port) as proxy, ThreadPoolExecutor() as threads:
        own, proxied = f":{store_server.port}", f":{proxy.port}"
        files = Files(Folder.at(store.location.replace(own, proxied)))
        left = [Fault(is_hole=True)]
        proxy.fault = lambda _: left.pop() if left else None

        write = threads.submit(files.write, "offsets/0", b"v1", overwrite=False)
        write.result(timeout=45)

        assert not left
    assert store.child("offsets").read("0") == b"v1"
