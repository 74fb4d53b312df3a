# SPDX-License-Identifier: Apache-2.0
"""What goes into a package: the tests install small packages in place of statefun and of what it requires."""

from __future__ import annotations

import sys
import tarfile
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Protocol

import pytest
from installed_packages import install

from statefun.projects.packages import Package, pack
from statefun.sdk.errors import ConfigurationError


class Install(Protocol):
    """Installs a package for a test."""

    def __call__(
        self,
        name: str,
        files: dict[str, str],
        requires: Sequence[str] = (),
        *,
        is_listed: bool = True,
    ) -> None:
        """Install it."""


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Install packages in a folder with a statefun that requires nothing; forget what the test imports."""
    before = set(sys.modules)
    put = partial(install, tmp_path / "site-packages", monkeypatch)
    put("statefun", {})
    yield put
    for name in sys.modules.keys() - before:
        del sys.modules[name]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Return the folder of a program."""
    folder = tmp_path / "home"
    folder.mkdir()
    return folder


def packed(home: Path, program: str, *further: str) -> Package:
    """Pack a program with a text."""
    (home / "app.py").write_text(program)
    return pack(home / "app.py", home.parent / "packages.tar.gz", further)


def names(package: Package) -> set[str]:
    """Return the paths in an archive, without those of descriptions."""
    with tarfile.open(package.archive) as tar:
        return {name for name in tar.getnames() if ".dist-info/" not in name}


def write(folder: Path, *files: str) -> None:
    """Create empty files below a folder."""
    for file in files:
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / file).touch()


def test_a_namespace_package_of_the_program_is_packed(home: Path, installed: Install) -> None:
    """A folder without __init__.py has its place in the archive, with what the program imports later."""
    write(home, "wares/prices.py", "wares/taxes/rates.py", "alone/later.py", "other/unused.py")

    package = packed(home, "import alone\nfrom wares.taxes import rates")

    assert names(package) == {"wares/prices.py", "wares/taxes/rates.py", "alone/later.py"}
    assert package.modules == ("alone", "wares")


def test_modules_from_a_further_entry_of_the_path_have_their_full_names(
    home: Path, installed: Install
) -> None:
    """The program adds a folder to the path; a package is also imported by the name of the program's folder."""
    write(home, "lib/deep/prices.py", "near.py")
    program = f"import sys\nsys.path[:0] = [{str(home / 'lib')!r}, {str(home.parent)!r}]\n"
    path = list(sys.path)
    try:
        package = packed(home, program + "import deep.prices\nimport home.near")
    finally:
        sys.path[:] = path

    assert names(package) >= {"deep/prices.py", "home/near.py", "home/app.py"}
    assert not [name for name in names(package) if "site-packages" in name or "tar.gz" in name]


def test_a_package_with_environments_and_its_former_archive(
    home: Path, installed: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither is part of the program; otherwise, an archive would grow by its own size with each command."""
    write(home, "__init__.py", "near.py", "dist/data.csv", "dist/packages.tar.gz")
    write(home, "venv/pyvenv.cfg", "venv/lib/large.py", "conda/conda-meta/history", "conda/a.py")
    (home / "app.py").write_text("import home.near")
    monkeypatch.syspath_prepend(str(home.parent))
    monkeypatch.chdir(home)

    package = pack(Path("app.py"), Path("dist/packages.tar.gz"))

    kept = {"home/__init__.py", "home/near.py", "home/app.py", "home/dist/data.csv"}
    assert names(package) == kept


def test_a_part_of_a_shared_namespace_brings_its_distribution(
    home: Path, installed: Install
) -> None:
    """The other part of the namespace, which was imported before, is of another distribution."""
    installed("cloud_base", {"cloudy/base.py": ""})
    installed("cloud_storage", {"cloudy/storage/__init__.py": ""})
    installed("cloud_unused", {"cloudy/unused.py": ""})
    __import__("cloudy.base")

    package = packed(home, "import cloudy.storage")

    assert package.requirements == {"cloud_storage": "1.0", "statefun": "1.0"}
    assert names(package) == {"cloudy/storage/__init__.py"}


def test_requirements_have_their_extras(home: Path, installed: Install) -> None:
    """An extra brings what it requires, in any order, and what other systems require is left out."""
    installed("client", {"client.py": ""}, ["base", "base[fast]", "base[FAST,zip]"])
    installed("base", {}, ['speed; extra == "fast"', 'never; extra == "slow"'])
    installed("speed", {}, ["dos; sys_platform == 'none'"])
    for name in ("never", "dos", "further"):
        installed(name, {})
    installed("asked", {}, ['further; extra == "more"'])

    package = packed(home, "import client", "asked[more]")

    assert set(package.requirements) == {"statefun", "client", "base", "speed", "asked", "further"}


def test_a_module_that_nothing_owns_is_an_error(home: Path, installed: Install) -> None:
    """It is neither below the program's folder nor of a distribution, or somebody copied it to where these are."""
    for folder in (home.parent / "site-packages", home.parent):
        write(folder, "stray.py")
        sys.path.insert(0, str(folder))
        try:
            with pytest.raises(
                ConfigurationError, match="the module stray cannot be packed, since"
            ):
                packed(home, "import stray")
        finally:
            sys.path.remove(str(folder))
            sys.modules.pop("stray", None)
            (folder / "stray.py").unlink()


def test_an_environment_below_the_program_is_not_its_own(
    home: Path, installed: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A distribution that is installed below the program's folder is packed as such."""
    place = home / "venv" / "lib" / "site-packages"
    install(place, monkeypatch, "near", {"near/__init__.py": "", "near.libs/x.so": ""})

    package = packed(home, "import near")

    assert names(package) == {"near/__init__.py", "near.libs/x.so"}
    assert package.modules == ()


def test_a_distribution_without_a_list_of_files_is_an_error(home: Path, installed: Install) -> None:
    """Packages of some systems have none: nothing of them would be packed."""
    installed("unlisted", {"unlisted.py": ""}, is_listed=False)

    with pytest.raises(ConfigurationError, match="unlisted is installed without a list of its"):
        packed(home, "", "unlisted")


def test_what_is_sparks_is_left_out(home: Path, installed: Install) -> None:
    """PySpark and Py4J come with each Spark, also if the program imports or names them."""
    installed("needy", {"needy.py": ""}, ["py4j", "pyspark[sql]"])

    package = packed(home, "import needy, pyspark.util, py4j.protocol", "py4j", "PySpark")

    assert package.requirements == {"needy": "1.0", "statefun": "1.0"}
    assert names(package) == {"needy.py"}


def test_hidden_files_of_the_program_stay_here(home: Path, installed: Install) -> None:
    """They may be secret; those of distributions are published, and may be libraries."""
    write(
        home, "secretive/__init__.py", "secretive/.env", "secretive/.git/config", "secretive/a.txt"
    )
    installed("libraries", {"libraries/__init__.py": "", "libraries/.dylibs/x.dylib": ""})

    package = packed(home, "import secretive, libraries")

    assert names(package) == {
        *("secretive/__init__.py", "secretive/a.txt"),
        *("libraries/__init__.py", "libraries/.dylibs/x.dylib"),
    }


def test_an_archive_does_not_say_who_has_packed_it(home: Path, installed: Install) -> None:
    """Its members belong to root, by number, and to nobody by name."""
    write(home, "owned.py")

    package = packed(home, "import owned")

    with tarfile.open(package.archive) as tar:
        owners = {(each.uid, each.gid, each.uname, each.gname) for each in tar.getmembers()}
    assert owners == {(0, 0, "", "")}


def test_a_failure_leaves_the_former_archive(
    home: Path, installed: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing else is left in its folder, either."""
    former = packed(home, "").archive.read_bytes()
    before = set(home.parent.iterdir())

    def full(*_: object, **__: object) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr(tarfile.TarFile, "add", full)
    with pytest.raises(OSError, match="no space"):
        packed(home, "")

    assert (home.parent / "packages.tar.gz").read_bytes() == former
    assert set(home.parent.iterdir()) == before
