# SPDX-License-Identifier: Apache-2.0
import zipfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from statefun.runtime.spark.jars import (
    SETTINGS_VARIABLE,
    MavenArtifact,
    resolve,
)
from statefun.sdk.errors import ConfigurationError, PlatformError

APP = MavenArtifact("com.example", "app", "1.0")
CODEC = MavenArtifact("com.example.codec", "codec-2", "2.1-rc3")
CORE = MavenArtifact("com.example", "core", "0.9")
NAMES = st.text("abcXYZ019._-", min_size=1)


@attrs.frozen
class Repository:
    """A Maven repository in a folder; ``app`` needs ``codec-2``, which needs ``core``."""

    root: Path
    settings: Path

    def publish(self, artifact: MavenArtifact, needs: Sequence[MavenArtifact] = ()) -> None:
        """Write the POM and the jar of an artifact."""
        name = f"{artifact.artifact}-{artifact.version}"
        folder = self.root.joinpath(*artifact.group.split("."), artifact.artifact, artifact.version)
        folder.mkdir(parents=True)
        (folder / f"{name}.pom").write_text(
            f"<project><modelVersion>4.0.0</modelVersion>{_elements(artifact)}<dependencies>"
            + "".join(f"<dependency>{_elements(need)}</dependency>" for need in needs)
            + "</dependencies></project>",
        )
        with zipfile.ZipFile(folder / f"{name}.jar", "w") as jar:
            jar.writestr("name.txt", name)


def _elements(artifact: MavenArtifact) -> str:
    return (
        f"<groupId>{artifact.group}</groupId><artifactId>{artifact.artifact}</artifactId>"
        f"<version>{artifact.version}</version>"
    )


def _settings(file: Path, root: str) -> Path:
    file.write_text(
        '<ivysettings><settings defaultResolver="here"/><resolvers>'
        f'<ibiblio name="here" m2compatible="true" root="{root}"/></resolvers></ivysettings>',
    )
    return file


def _names(jars: Sequence[Path]) -> list[str]:
    return [jar.name for jar in jars]


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Repository:
    """Give a repository that Ivy uses instead of Maven Central."""
    root = tmp_path / "repository"
    settings = _settings(tmp_path / "ivysettings.xml", root.as_uri() + "/")
    repository = Repository(root, settings)
    repository.publish(CORE)
    repository.publish(CODEC, needs=[CORE])
    repository.publish(APP, needs=[CODEC])
    monkeypatch.setenv(SETTINGS_VARIABLE, str(settings))
    return repository


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    """Give a cache folder that does not exist yet, with a name that Ivy patterns trip over."""
    return tmp_path / "cache [of] (jars)"


@given(group=NAMES, artifact=NAMES, version=NAMES)
def test_coordinates_read_back_what_they_print(group: str, artifact: str, version: str) -> None:
    """The text of an artifact parses as the same artifact."""
    written = MavenArtifact(group, artifact, version)

    read = MavenArtifact.parse(str(written))

    assert read == written


@pytest.mark.parametrize("text", ["", "slf4j-api", "g:a", "g::v", "g:a:v:sources"])
def test_coordinates_need_three_parts(text: str) -> None:
    """Anything but group, artifact and version is refused with the form that is right."""
    with pytest.raises(ConfigurationError, match="must have the form group:artifact:version"):
        MavenArtifact.parse(text)


def test_maven_central_is_the_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without settings an artifact comes from Maven Central, with its dependencies."""
    monkeypatch.delenv(SETTINGS_VARIABLE, raising=False)

    jars = resolve([MavenArtifact.parse("org.slf4j:slf4j-nop:2.0.17")], cache=tmp_path)

    assert _names(jars) == ["org.slf4j_slf4j-api-2.0.17.jar", "org.slf4j_slf4j-nop-2.0.17.jar"]
    assert all(zipfile.is_zipfile(jar) for jar in jars)


@pytest.mark.usefixtures("repository")
def test_dependencies_come_along(cache: Path) -> None:
    """Transitive dependencies are resolved, paths are absolute and sorted, steps are reported."""
    steps: list[str] = []

    jars = resolve([APP], cache=cache, progress=steps.append)

    assert _names(jars) == [
        "com.example.codec_codec-2-2.1-rc3.jar",
        "com.example_app-1.0.jar",
        "com.example_core-0.9.jar",
    ]
    assert all(jar.is_absolute() for jar in jars)
    assert steps[0] == "com.example#app;1.0 (found 1)"
    assert steps[-1].endswith("(3 of 3)")


@pytest.mark.usefixtures("repository")
@pytest.mark.parametrize("exclude", ["codec-2", "com.example.codec:codec-2"])
def test_excluded_artifacts_take_their_dependencies_along(cache: Path, exclude: str) -> None:
    """An excluded artifact is left out together with its own dependencies."""
    jars = resolve([APP], cache=cache, exclude=[exclude])

    assert _names(jars) == ["com.example_app-1.0.jar"]


@pytest.mark.usefixtures("repository")
def test_second_call_needs_no_java(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cached jars are found without starting a JVM, in any order of the artifacts."""
    first = resolve([CORE, APP], cache=cache)
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", "")

    again = resolve([CORE, APP], cache=cache)

    assert again == first


@pytest.mark.usefixtures("repository")
def test_who_may_read_the_jars_may_read_their_list(cache: Path) -> None:
    """All files of the cache have the permissions of any new file, so that it can be filled for another user."""
    [*jars, _] = resolve([APP], cache=cache)
    (cache / "new").touch()

    modes = {each.stat().st_mode for each in (*jars[0].parent.iterdir(), cache / "new")}

    assert len(modes) == 1


@pytest.mark.usefixtures("repository")
@pytest.mark.parametrize("damage", ["deleted", "truncated", "manifest"])
def test_damaged_cache_is_repaired(cache: Path, damage: str) -> None:
    """A cache entry with a missing or cut file is resolved again."""
    jars = resolve([APP], cache=cache)
    sizes = [jar.stat().st_size for jar in jars]
    if damage == "deleted":
        jars[0].unlink()
    elif damage == "truncated":
        jars[0].write_bytes(b"PK")
    else:
        (jars[0].parent / "manifest.json").write_text('{"com.exam')

    repaired = resolve([APP], cache=cache)

    assert repaired == jars
    assert [jar.stat().st_size for jar in repaired] == sizes


@pytest.mark.usefixtures("repository")
def test_concurrent_calls_agree(cache: Path) -> None:
    """Calls at the same time return the same jars, and leave no other files."""
    with ThreadPoolExecutor() as pool:
        calls = [pool.submit(resolve, [APP], cache=cache) for _ in range(3)]

    results = {call.result() for call in calls}

    assert len(results) == 1
    assert all(jar.is_file() for jar in results.pop())
    assert not list(cache.glob(".*"))


@pytest.mark.usefixtures("repository")
def test_wrong_version_is_explained(cache: Path) -> None:
    """The error for a version that does not exist names it, Ivy's text and a remedy."""
    with pytest.raises(PlatformError) as caught:
        resolve([MavenArtifact.parse("com.example:app:99")], cache=cache)

    message = caught.value.message
    assert message.startswith("cannot download com.example:app:99 (")
    assert "  | :: com.example#app;99: not found" in message
    assert "-Dhttps.proxyHost" in message
    assert SETTINGS_VARIABLE in message


def test_missing_dependency_is_named(repository: Repository, cache: Path) -> None:
    """The error names the missing artifact, not only the requested one."""
    lacking = MavenArtifact("com.example", "lacking", "1")
    repository.publish(lacking, needs=[MavenArtifact("org.gone", "gone", "3")])

    with pytest.raises(PlatformError, match=r"^\[SF700\] cannot download org\.gone:gone:3 "):
        resolve([lacking], cache=cache)


def test_passwords_in_addresses_are_not_shown(
    tmp_path: Path,
    cache: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Ivy prints addresses as they are written; an error shows them without user and password."""
    settings = _settings(tmp_path / "private.xml", "http://bob:s3cret@127.0.0.1:9/maven/")
    monkeypatch.setenv(SETTINGS_VARIABLE, str(settings))

    with pytest.raises(PlatformError) as caught:
        resolve([APP], cache=cache)

    assert "http://127.0.0.1:9/maven/" in caught.value.message
    assert "s3cret" not in caught.value.message


@pytest.mark.usefixtures("repository")
def test_interrupted_download_leaves_nothing(cache: Path) -> None:
    """A callback that raises, as Ctrl-C would, ends Ivy and leaves no partial files."""

    def interrupt(_: str) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        resolve([APP], cache=cache, progress=interrupt)

    assert not list(cache.glob("*/*"))
    assert not list(cache.glob(".*"))


@pytest.mark.usefixtures("repository")
@pytest.mark.parametrize("home", [None, "nowhere"])
def test_missing_java_is_explained(
    cache: Path,
    monkeypatch: pytest.MonkeyPatch,
    home: str | None,
) -> None:
    """Without Java the error has the command that installs it."""
    monkeypatch.setenv("PATH", "")
    if home is None:
        monkeypatch.delenv("JAVA_HOME", raising=False)
    else:
        monkeypatch.setenv("JAVA_HOME", home)

    with pytest.raises(PlatformError, match=r"no java .*'(sudo apt-get|brew) install"):
        resolve([APP], cache=cache)


def test_settings_must_exist(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A settings variable that names no file is reported before Ivy starts."""
    monkeypatch.setenv(SETTINGS_VARIABLE, "gone.xml")

    with pytest.raises(
        ConfigurationError, match=r"must be the path of an existing file, but is 'gone\.xml'"
    ):
        resolve([APP], cache=cache)


def test_unwritable_cache_is_explained(tmp_path: Path) -> None:
    """A cache folder that cannot be made gives an error that says how to choose another."""
    (tmp_path / "file").touch()

    with pytest.raises(PlatformError, match="XDG_CACHE_HOME"):
        resolve([APP], cache=tmp_path / "file" / "jars")
