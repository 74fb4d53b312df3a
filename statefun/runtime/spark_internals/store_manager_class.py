# SPDX-License-Identifier: Apache-2.0
"""The Java source of the class that Spark calls for each of its logs and state files in a store.

Based on ``CheckpointFileManager``, ``HDFSMetadataLog`` and ``RocksDBFileManager`` of Spark 4.2.0, and on S3A and ``FileContext`` of
Hadoop 3.5.0.
"""

from __future__ import annotations

from statefun.runtime.spark_internals.log_files import RUN_OF_COMMIT

CLASS = "statefun.StoreFileManager"
"""The name of the class."""
RUN_SETTING = "statefun.run"
"""The setting with the id of the run, for commits."""
MANAGER_SOURCE = """
package statefun;

import java.io.ByteArrayOutputStream;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.UUID;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.commons.io.IOUtils;
import org.apache.commons.lang3.exception.ExceptionUtils;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FSDataOutputStreamBuilder;
import org.apache.hadoop.fs.FileAlreadyExistsException;
import org.apache.hadoop.fs.FileContext;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Options;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.PathFilter;
import org.apache.spark.sql.execution.streaming.checkpointing.CheckpointFileManager;

public class StoreFileManager implements CheckpointFileManager {
    private final Path root;
    private final FileSystem files;
    private final Configuration conf;
    private final String run;
    private final boolean isHdfs;
    private boolean isListed;
    private long newest = -1;
    /** The newest batch that each run has committed in this JVM, by the run's id. */
    public static final ConcurrentHashMap COMMITS = new ConcurrentHashMap();

    public StoreFileManager(Path root, Configuration conf) throws IOException {
        this.root = root;
        this.files = root.getFileSystem(conf);
        this.conf = conf;
        this.run = conf.get("%(run_setting)s", "");
        this.isHdfs = "hdfs".equals(files.getScheme());
    }

    public CheckpointFileManager.CancellableFSDataOutputStream createAtomic(Path path, boolean overwrite) {
        try {
            if (!overwrite) {
                return new NewFile(this, files, path, run);
            }
            if (isHdfs) {
                return new RenamedFile(this, path, Options.Rename.OVERWRITE);
            }
            return new ReplacedFile(ReplacedFile.open(files, path));
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

    /** Create a file with this content; an IOException if there is one of its name. */
    void create(Path path, byte[] content) throws IOException {
        if (isHdfs) {
            RenamedFile file = new RenamedFile(this, path, Options.Rename.NONE);
            file.write(content);
            file.close();
            return;
        }
        FSDataOutputStreamBuilder builder = files.createFile(path);
        builder.must("fs.option.create.conditional.overwrite", true);
        FSDataOutputStream stream = (FSDataOutputStream) builder.build();
        stream.write(content);
        stream.close();
    }

    FSDataOutputStream begin(Path path) throws IOException {
        return files.create(path, false);
    }

    /** Rename a file of HDFS in one step. */
    void rename(Path path, Path target, Options.Rename how) throws IOException {
        FileContext context = FileContext.getFileContext(path.toUri(), conf);
        context.rename(path, target, new Options.Rename[] {how});
    }

    static Path temporary(Path path) {
        return new Path(path.getParent(), "." + path.getName() + "." + UUID.randomUUID() + ".tmp");
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

/** A file of HDFS that gets its name, or replaces another file, when it is complete. */
class RenamedFile extends CheckpointFileManager.CancellableFSDataOutputStream {
    private final StoreFileManager manager;
    private final Path path;
    private final Path written;
    private final Options.Rename how;
    private final FSDataOutputStream stream;
    private boolean isOver;

    RenamedFile(StoreFileManager manager, Path path, Options.Rename how) throws IOException {
        this(manager, path, StoreFileManager.temporary(path), how);
    }

    private RenamedFile(StoreFileManager manager, Path path, Path written, Options.Rename how) throws IOException {
        this(manager, path, written, how, manager.begin(written));
    }

    private RenamedFile(
            StoreFileManager manager, Path path, Path written, Options.Rename how, FSDataOutputStream stream) {
        super(stream);
        this.manager = manager;
        this.path = path;
        this.written = written;
        this.how = how;
        this.stream = stream;
    }

    public void close() throws IOException {
        if (isOver) {
            return;
        }
        isOver = true;
        try {
            stream.hsync();
            stream.close();
            manager.rename(written, path, how);
        } catch (IOException error) {
            manager.delete(written);
            throw error;
        }
    }

    public void cancel() {
        if (isOver) {
            return;
        }
        isOver = true;
        try {
            stream.close();
        } catch (IOException error) {
            // it is deleted anyway
        }
        manager.delete(written);
    }
}

class NewFile extends CheckpointFileManager.CancellableFSDataOutputStream {
    private final StoreFileManager manager;
    private final FileSystem files;
    private final Path path;
    private final String run;
    private boolean isOver;

    NewFile(StoreFileManager manager, FileSystem files, Path path, String run) {
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
                manager.create(path, content);
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
""" % {"run": RUN_OF_COMMIT, "run_setting": RUN_SETTING}  # noqa: UP031 - Java has braces of its own
