# SPDX-License-Identifier: Apache-2.0
"""Downloads Java libraries from Maven repositories, with the Ivy that PySpark ships.

Downloads are kept in the user's cache folder, one folder per request with a
manifest: a second call for the same artifacts neither uses the network nor starts a JVM.

Spark's own way, ``ADD JAR 'ivy://group:artifact:version?transitive=true&exclude=...'``, needs a session,
which the embedded Kafka does not have. ADD JAR resolves the artifacts at every start, which takes more than a
second even if its cache has all jars. It prints some thirty lines each time, and eighty when it
downloads, whatever the log level is. It waits for ever for a repository that does not answer, and its errors
are stack traces.
"""

from __future__ import annotations

import collections
import contextlib
import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
import tempfile
import xml.etree.ElementTree as ET
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

import attrs

from statefun.runtime.spark_internals.class_path import spark_jars_folder
from statefun.sdk.errors import ConfigurationError, PlatformError

SETTINGS_VARIABLE = "STATEFUN_IVY_SETTINGS"
"""The environment variable with the path of an ``ivysettings.xml``, such as the settings for a mirror."""

_MANIFEST = "manifest.json"
# By default Java waits for ever, so that it would hang if a firewall drops its packets.
_CONNECT_TIMEOUT_MS = 20_000
_READ_TIMEOUT_MS = 60_000
_LINES_SHOWN = 15

_FOUND = re.compile(r"^\s*found (?P<module>\S+#\S+;\S+) in ")
_DOWNLOADED = re.compile(r"^\s*\[SUCCESSFUL ?] (?P<module>\S+#\S+;[^!\s]+)!")
_UNRESOLVED = re.compile(r"^\s*:: (?P<module>\S+#[^;\s]+;[^:!\s]+)(?:: |!)")
_BROKEN = ("Server access error", "[FAILED")
_USER_IN_URL = re.compile(r"://[^/@\s]+@")


class NotPublishedError(PlatformError):
    """The repository has answered that it does not have this version of an artifact."""


@attrs.frozen
class MavenArtifact:
    """The coordinates of a library in a Maven repository."""

    group: str
    artifact: str
    version: str

    @classmethod
    def parse(cls, coordinates: str) -> MavenArtifact:
        """Parse coordinates in the form ``group:artifact:version``.

        >>> MavenArtifact.parse("org.slf4j:slf4j-api:2.0.17").artifact
        'slf4j-api'
        >>> MavenArtifact.parse("slf4j-api")
        Traceback (most recent call last):
        ...
        statefun.sdk.errors.ConfigurationError: [SF100] 'slf4j-api' must have the form group:artifact:version

        Raises:
            ConfigurationError: The text does not have these three parts.
        """
        parts = [part.strip() for part in coordinates.split(":")]
        match parts:
            case [group, artifact, version] if all(parts):
                return cls(group, artifact, version)
            case _:
                raise ConfigurationError(
                    f"{coordinates!r} must have the form group:artifact:version"
                )

    def __str__(self) -> str:
        return f"{self.group}:{self.artifact}:{self.version}"


def resolve(
    artifacts: Sequence[MavenArtifact],
    *,
    cache: Path | None = None,
    exclude: Collection[str] = (),
    progress: Callable[[str], None] | None = None,
) -> tuple[Path, ...]:
    """Return the jars of artifacts and of all their runtime dependencies; download them if they are missing.

    Processes may call this at the same time: each downloads into a folder of its own and moves
    the finished files into the cache.

    Args:
        artifacts: The artifacts, resolved together, so that conflicts of versions are settled.
        cache: The folder in which the jars are kept; by default ``statefun/jars`` in the user's cache folder.
        exclude: Artifacts to leave out with their own dependencies: ``artifact`` in any group, or
            ``group:artifact``.
        progress: Called with a short text for each module that Ivy has found or downloaded.

    Returns:
        Absolute paths, sorted.

    Raises:
        NotPublishedError: The repository does not have an artifact's version.
        PlatformError: Java is missing, a download failed, or the cache cannot be written.
        ConfigurationError: ``STATEFUN_IVY_SETTINGS`` does not name a file.
    """
    if not artifacts:
        return ()
    root = (cache_folder() / "jars" if cache is None else cache).absolute()
    folder = root / _key(artifacts, exclude)
    jars = _cached(folder)
    if jars is not None:
        return jars
    try:
        folder.mkdir(parents=True, exist_ok=True)
        # Inside the cache, because only a move within one file system is atomic.
        with tempfile.TemporaryDirectory(prefix=".download-", dir=root) as work:
            downloaded = _download(artifacts, exclude, Path(work), progress)
            return _keep(downloaded, folder, Path(work))
    except OSError as error:
        raise PlatformError(
            f"cannot keep jars in {root}: {error}; make the folder writable, or name another "
            "cache folder in the environment variable XDG_CACHE_HOME",
        ) from error


def is_cached(artifacts: Sequence[MavenArtifact], *, exclude: Collection[str] = ()) -> bool:
    """Return whether the cache has all jars, so that ``resolve`` needs no repository for the same arguments."""
    return _cached((cache_folder() / "jars").absolute() / _key(artifacts, exclude)) is not None


def cache_folder() -> Path:
    """Return statefun's cache folder in the user's cache folder; its files can be downloaded or made again."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "statefun"


def java_command() -> str:
    """Return the path of the command ``java``: in ``JAVA_HOME`` if that is set, else on the PATH.

    Raises:
        PlatformError: There is no ``java``; the error text has the command that installs it.
    """
    home = os.environ.get("JAVA_HOME")
    java = shutil.which("java", path=str(Path(home) / "bin") if home else None)
    if java:
        return java
    where = f"in {home}/bin, where JAVA_HOME points" if home else "on the PATH"
    install = (
        "brew install openjdk@17"
        if platform.system() == "Darwin"
        else "sudo apt-get install openjdk-17-jre-headless' or 'sudo dnf install java-17-openjdk"
    )
    raise PlatformError(f"Spark and Kafka need Java 17 or newer: no java {where}; '{install}'")


def _key(artifacts: Sequence[MavenArtifact], exclude: Collection[str]) -> str:
    request = [sorted({str(artifact) for artifact in artifacts}), sorted(set(exclude))]
    digest = hashlib.sha256(json.dumps(request).encode()).hexdigest()[:16]
    return f"{artifacts[0].artifact}-{artifacts[0].version}-{digest}"


def _cached(folder: Path) -> tuple[Path, ...] | None:
    """Return the jars that a cache folder's manifest lists; None if a jar is missing or has changed."""
    try:
        sizes = json.loads((folder / _MANIFEST).read_text())
        if any((folder / name).stat().st_size != size for name, size in sizes.items()):
            return None
    except (OSError, ValueError):
        return None
    return tuple(sorted(folder / name for name in sizes))


def _keep(downloaded: Sequence[Path], folder: Path, work: Path) -> tuple[Path, ...]:
    """Move downloaded jars into a cache folder, and list them in its manifest at the end, which is written in ``work``."""
    sizes = {jar.name: jar.stat().st_size for jar in downloaded}
    for jar in downloaded:
        # File by file: a folder that another process uses is complete at every moment.
        jar.replace(folder / jar.name)
    # With the permissions of any new file: who may read the jars may read their list.
    manifest = work / _MANIFEST
    manifest.write_text(json.dumps(sizes, indent=1, sort_keys=True))
    manifest.replace(folder / _MANIFEST)
    return tuple(sorted(folder / name for name in sizes))


def _download(
    artifacts: Sequence[MavenArtifact],
    exclude: Collection[str],
    work: Path,
    progress: Callable[[str], None] | None,
) -> list[Path]:
    """Download jars into the folder ``work`` with Ivy; if a connection breaks, try once more."""
    _write_request(artifacts, exclude, work / "ivy.xml")
    command = _ivy_command()
    output = _Output(progress)
    code = _run(command, work, output)
    if code != 0 and output.found_count and output.has_failed:
        # Ivy has reached the repository. Finished downloads are in its cache, which is below `work`.
        output = _Output(progress)
        code = _run(command, work, output)
    jars = list((work / "jars").glob("*.jar"))
    if code == 0 and jars:
        return jars
    names = ", ".join(output.unresolved_modules or map(str, artifacts))
    kind = (
        NotPublishedError if output.unresolved_modules and not output.has_failed else PlatformError
    )
    lines = "\n".join(f"  | {line}" for line in output.tail)
    raise kind(
        f"cannot download {names} (Ivy ended with code {code} and {len(jars)} jars); "
        f"it last wrote\n{lines}\n"
        "Check that this version exists and that this machine reaches the repository. "
        'Behind a proxy set JAVA_TOOL_OPTIONS="-Dhttps.proxyHost=HOST -Dhttps.proxyPort=PORT"; '
        f"for another repository set {SETTINGS_VARIABLE} to the path of its ivysettings.xml.",
    )


def _write_request(
    artifacts: Sequence[MavenArtifact],
    exclude: Collection[str],
    file: Path,
) -> None:
    module = ET.Element("ivy-module", version="2.0")
    ET.SubElement(module, "info", organisation="statefun", module="jars")
    ET.SubElement(ET.SubElement(module, "configurations"), "conf", name="default")
    dependencies = ET.SubElement(module, "dependencies")
    for artifact in artifacts:
        ET.SubElement(
            dependencies,
            "dependency",
            org=artifact.group,
            name=artifact.artifact,
            rev=artifact.version,
            conf="default->master,runtime",
        )
    for name in sorted(set(exclude)):
        group, _, artifact_name = name.rpartition(":")
        ET.SubElement(dependencies, "exclude", org=group or "*", module=artifact_name)
    ET.ElementTree(module).write(file, encoding="utf-8", xml_declaration=True)


def _ivy_command() -> list[str]:
    ivy = os.pathsep.join(map(str, sorted(spark_jars_folder().glob("ivy-*.jar"))))
    command = [
        java_command(),
        f"-Dsun.net.client.defaultConnectTimeout={_CONNECT_TIMEOUT_MS}",
        f"-Dsun.net.client.defaultReadTimeout={_READ_TIMEOUT_MS}",
        *("-cp", ivy, "org.apache.ivy.Main"),
    ]
    settings = os.environ.get(SETTINGS_VARIABLE)
    if settings:
        if not Path(settings).is_file():
            raise ConfigurationError(
                f"{SETTINGS_VARIABLE} must be the path of an existing file, but is {settings!r}"
            )
        command += ["-settings", str(Path(settings).absolute())]
    # Relative paths: Ivy would read brackets in an absolute path as a part of the pattern.
    command += ["-cache", "ivy", "-ivy", "ivy.xml", "-confs", "default"]
    # OSGi bundles are jars, too.
    command += ["-types", "jar", "bundle"]
    command += ["-retrieve", "jars/[organisation]_[artifact]-[revision](-[classifier]).[ext]"]
    return command


def _run(command: Sequence[str], work: Path, output: _Output) -> int:
    with subprocess.Popen(
        command,
        cwd=work,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    ) as process:
        with contextlib.ExitStack() as on_error:
            on_error.callback(process.kill)  # a callback that raises, or Ctrl-C
            for line in process.stdout or ():
                output.read(line)
            on_error.pop_all()
        return process.wait()


class _Output:
    """The last lines of Ivy's output, and how many modules Ivy has found and downloaded until now."""

    def __init__(self, progress: Callable[[str], None] | None) -> None:
        self.tail: collections.deque[str] = collections.deque(maxlen=_LINES_SHOWN)
        self.unresolved_modules: list[str] = []
        self.found_count = 0
        self.has_failed = False
        self._downloaded_count = 0
        self._progress = progress

    def read(self, line: str) -> None:
        text = _USER_IN_URL.sub("://", line.strip())
        if text.strip(":.-|= "):  # no line that only separates others
            self.tail.append(text)
        self.has_failed |= any(sign in line for sign in _BROKEN)
        if match := _FOUND.match(line):
            self.found_count += 1
            self._report(f"{match['module']} (found {self.found_count})")
        elif match := _DOWNLOADED.match(line):
            self._downloaded_count += 1
            total = max(self.found_count, self._downloaded_count)
            self._report(f"{match['module']} ({self._downloaded_count} of {total})")
        elif match := _UNRESOLVED.match(line):
            module = match["module"].replace("#", ":").replace(";", ":")
            if module not in self.unresolved_modules:
                self.unresolved_modules.append(module)

    def _report(self, text: str) -> None:
        if self._progress is not None:
            self._progress(text)
