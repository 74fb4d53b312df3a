# SPDX-License-Identifier: Apache-2.0
"""Spark's logs and state files in an object store: a class that Spark calls for each of these files.

Based on ``CheckpointFileManager``, ``HDFSMetadataLog`` and ``RocksDBFileManager`` of Spark 4.2.0, and on S3A of Hadoop 3.5.0.
Spark's own classes write a file under a second name and rename it, which in an object store copies it, and does not
refuse a second writer; or they do not report that a file was not written. This class creates a file of a log in one request,
which the store refuses if the file exists. A list or a folder costs a request, too, so that it asks for files by their
names, and creates no folders.

To each commit, it adds the id of the run that commits the batch: the field ``statefunRun`` in the line of JSON, of which Spark reads only
the fields that it knows.
"""

from __future__ import annotations

import atexit
import shutil
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from statefun.runtime.spark_internals.class_path import add_jars, has_class
from statefun.runtime.spark_internals.jvm import JvmError, jvm
from statefun.runtime.spark_internals.log_files import RUN_OF_COMMIT

_CLASS = "statefun.ObjectStoreFiles"
_RUN_SETTING = "statefun.run"
_SOURCE = """
package statefun;

import java.io.ByteArrayOutputStream;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.commons.io.IOUtils;
import org.apache.commons.lang3.exception.ExceptionUtils;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FSDataOutputStreamBuilder;
import org.apache.hadoop.fs.FileAlreadyExistsException;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.PathFilter;
import org.apache.spark.sql.execution.streaming.checkpointing.CheckpointFileManager;

public class ObjectStoreFiles implements CheckpointFileManager {
    private final Path root;
    private final FileSystem files;
    private final String run;
    private boolean isListed;
    private long newest = -1;
    /** The newest batch that each run has committed in this JVM, by the run's id. */
    public static final ConcurrentHashMap COMMITS = new ConcurrentHashMap();

    public ObjectStoreFiles(Path root, Configuration conf) throws IOException {
        this.root = root;
        this.files = root.getFileSystem(conf);
        this.run = conf.get("%(run_setting)s", "");
    }

    public CheckpointFileManager.CancellableFSDataOutputStream createAtomic(Path path, boolean overwrite) {
        try {
            if (overwrite) {
                return new ReplacedFile(ReplacedFile.open(files, path));
            }
            return new NewFile(this, files, path, run);
        } catch (IOException error) {
            throw raised(error);
        }
    }

    public FSDataInputStream open(Path path) {
        try {
            return files.open(path);
        } catch (IOException error) {
            throw raised(error);
        }
    }

    public FileStatus[] list(Path path, PathFilter filter) {
        try {
            FileStatus[] found = files.listStatus(path, filter);
            if (path.equals(root)) {
                for (int i = 0; i < found.length; i++) {
                    newest = Math.max(newest, number(found[i].getPath()));
                }
                isListed = true;
            }
            return found;
        } catch (FileNotFoundException error) {
            isListed |= path.equals(root);
            return new FileStatus[0];
        } catch (IOException error) {
            throw raised(error);
        }
    }

    public void mkdirs(Path path) {
    }

    public boolean exists(Path path) {
        String folder = path.getParent() == null ? "" : path.getParent().getName();
        boolean isLog = folder.equals("offsets") || folder.equals("commits");
        // Spark asks before it adds the next file to a log; if another driver has added it, the store refuses this one.
        if (isLog && isListed && number(path) > newest) {
            return false;
        }
        boolean isFile = isLog || path.getName().indexOf('.') >= 0;
        try {
            if (!isFile) {
                boolean isThere = files.exists(path);
                isListed |= !isThere && path.equals(root);  // Spark does not list a log without files
                return isThere;
            }
            files.open(path).close();
            return true;
        } catch (FileNotFoundException error) {
            return false;
        } catch (IOException error) {
            throw raised(error);
        }
    }

    public void delete(Path path) {
        try {
            files.delete(path, true);
        } catch (FileNotFoundException error) {
        } catch (IOException error) {
            throw raised(error);
        }
    }

    public boolean isLocal() {
        return false;
    }

    void created(Path path) {
        newest = Math.max(newest, number(path));
        if (!run.isEmpty() && path.getParent().getName().equals("commits")) {
            COMMITS.put(run, Long.valueOf(number(path)));
        }
    }

    private static long number(Path path) {
        String name = path.getName();
        for (int i = 0; i < name.length(); i++) {
            if (!Character.isDigit(name.charAt(i))) {
                return -1;
            }
        }
        return name.isEmpty() ? -1 : Long.parseLong(name);
    }

    public Path createCheckpointDirectory() {
        return files.makeQualified(root);
    }

    private static RuntimeException raised(IOException error) {
        ExceptionUtils.rethrow(error);
        return null;
    }
}

class ReplacedFile extends CheckpointFileManager.CancellableFSDataOutputStream {
    private final FSDataOutputStream stream;
    private boolean isOver;

    static FSDataOutputStream open(FileSystem files, Path path) throws IOException {
        FSDataOutputStreamBuilder builder = files.createFile(path).overwrite(true);
        builder.opt("fs.s3a.create.performance", true);
        return (FSDataOutputStream) builder.build();
    }

    ReplacedFile(FSDataOutputStream stream) {
        super(stream);
        this.stream = stream;
    }

    public void close() throws IOException {
        if (!isOver) {
            isOver = true;
            stream.close();
        }
    }

    public void cancel() {
        if (!isOver) {
            isOver = true;
            stream.abort();
        }
    }
}

class NewFile extends CheckpointFileManager.CancellableFSDataOutputStream {
    private final ObjectStoreFiles manager;
    private final FileSystem files;
    private final Path path;
    private final String run;
    private boolean isOver;

    NewFile(ObjectStoreFiles manager, FileSystem files, Path path, String run) {
        super(new ByteArrayOutputStream());
        this.manager = manager;
        this.files = files;
        this.path = path;
        this.run = run;
    }

    public void close() throws IOException {
        if (isOver) {
            return;
        }
        isOver = true;
        byte[] content = content();
        for (int attempt = 1; ; attempt++) {
            try {
                FSDataOutputStreamBuilder builder = files.createFile(path);
                builder.must("fs.option.create.conditional.overwrite", true);
                FSDataOutputStream stream = (FSDataOutputStream) builder.build();
                stream.write(content);
                stream.close();
                manager.created(path);
                return;
            } catch (IOException error) {
                // The answer to an earlier request may be lost, so that the next one finds the file there.
                byte[] present = present();
                if (present != null && Arrays.equals(present, content)) {
                    manager.created(path);
                    return;
                }
                if (present != null) {
                    throw new FileAlreadyExistsException(path + " exists");
                }
                if (attempt == 3) {
                    throw error;
                }
            }
        }
    }

    public void cancel() {
        isOver = true;
    }

    private byte[] content() {
        byte[] content = ((ByteArrayOutputStream) getWrappedStream()).toByteArray();
        if (run.isEmpty() || !path.getParent().getName().equals("commits")) {
            return content;
        }
        String text = new String(content, StandardCharsets.UTF_8).trim();
        String field = "\\"%(run)s\\":\\"" + run + "\\"}";
        String head = text.substring(0, text.length() - 1);
        return (head + (head.endsWith("{") ? "" : ",") + field).getBytes(StandardCharsets.UTF_8);
    }

    private byte[] present() throws IOException {
        FSDataInputStream stream = null;
        try {
            stream = files.open(path);
            return IOUtils.toByteArray(stream);
        } catch (FileNotFoundException error) {
            return null;
        } finally {
            if (stream != null) {
                stream.close();
            }
        }
    }
}
""" % {"run": RUN_OF_COMMIT, "run_setting": _RUN_SETTING}  # noqa: UP031 - Java has braces of its own


_given: dict[str, set[str]] = {}
"""The keys of the settings that earlier runs of this process have given to Hadoop, by bucket."""


def keep_checkpoint_in_store(
    session: SparkSession, bucket: str, hadoop: dict[str, str], run: str
) -> None:
    """Make the queries of ``session`` write checkpoints in an object store through this module's class.

    Args:
        session: the session; Hadoop's file system for the store must be on its class path.
        bucket: the name of the bucket.
        hadoop: Hadoop's settings for the bucket, without the prefix ``fs.s3a.``, for those keys that the user has not set.
        run: the id of the run, which is added to commits; empty to add none.
    """
    if not has_class(_CLASS):
        folder = Path(tempfile.mkdtemp(prefix="statefun-classes-"))
        atexit.register(
            shutil.rmtree, folder, ignore_errors=True
        )  # executors that join later load it, too
        add_jars(session, [_jar(folder)])
    context = session._jsparkSession.sparkContext()  # noqa: SLF001 - it has no public name
    configuration = context.hadoopConfiguration()
    # It was made before the jars were added, and looks for Hadoop's file systems in its own class path.
    configuration.setClassLoader(jvm().java.lang.Thread.currentThread().getContextClassLoader())
    _give(configuration, bucket, hadoop)
    for key, value in {
        "spark.sql.streaming.checkpointFileManagerClass": _CLASS,
        # A second file for each file; the store has checksums of its own.
        "spark.sql.streaming.checkpoint.fileChecksum.enabled": "false",
        _RUN_SETTING: run,
    }.items():
        session.conf.set(key, value)


def _give(configuration: Any, bucket: str, hadoop: dict[str, str]) -> None:
    """Give Hadoop the settings of a bucket; the settings of other buckets stay as they are."""
    prefix = f"fs.s3a.bucket.{bucket}."
    own = _given.setdefault(bucket, set())
    wanted = {
        f"{prefix}{key}": value
        for key, value in hadoop.items()
        if _is_free(configuration, f"fs.s3a.{key}")
        and (f"{prefix}{key}" in own or configuration.get(f"{prefix}{key}") is None)
    }
    if all(configuration.get(key) == wanted.get(key) for key in own | wanted.keys()):
        return
    if own:  # Hadoop keeps one connection for each bucket, whatever the settings are now
        uri = jvm().java.net.URI(f"s3a://{bucket}/")
        jvm().org.apache.hadoop.fs.FileSystem.get(uri, configuration).close()
    for key in own - wanted.keys():
        configuration.unset(key)
    for key, value in wanted.items():
        configuration.set(key, value)
    _given[bucket] = {*wanted}


def _is_free(configuration: Any, key: str) -> bool:
    """Return whether the user has not set a key of Hadoop's."""
    sources = configuration.getPropertySources(key)
    return configuration.get(key) is None or sources is None or sources[-1] == "core-default.xml"


def commits_of(run: str) -> Callable[[], int]:
    """Return a function that returns the newest batch that a run has committed in this JVM.

    It returns -1 if there is none, or if the JVM has ended. It makes no request to the store.
    """
    loader = jvm().java.lang.Thread.currentThread().getContextClassLoader()
    commits = loader.loadClass(_CLASS).getField("COMMITS").get(None)

    def newest() -> int:
        try:
            found = commits.get(run)
        except (JvmError, OSError):
            return -1
        return -1 if found is None else int(found)

    return newest


def _jar(folder: Path) -> Path:
    """Compile the class, and return a jar with it."""
    packages: Any = jvm()
    compiler = packages.org.codehaus.janino.SimpleCompiler()
    compiler.setParentClassLoader(packages.java.lang.Thread.currentThread().getContextClassLoader())
    compiler.cook(_SOURCE)
    codes = compiler.getBytecodes()
    jar = folder / "statefun-object-store.jar"
    with zipfile.ZipFile(jar, "w") as archive:
        for name in codes:
            archive.writestr(f"{name.replace('.', '/')}.class", bytes(codes[name]))
    return jar
