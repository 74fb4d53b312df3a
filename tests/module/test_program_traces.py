# SPDX-License-Identifier: Apache-2.0
"""What a program adds to a process is removed before another program is loaded."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from statefun import StringType, make_avro_type, make_json_type, simple_type
from statefun.module.user_program import forget_loaded, load_program
from statefun.sdk.errors import ConfigurationError
from statefun.sdk.functions import default_functions
from statefun.sdk.types import default_types

NUMBER = "test.traces/Number"


def defining(typename: str) -> str:
    """Return a program that registers a function, and notes each execution of itself."""
    return (
        "from statefun import *\n"
        "import sys\n"
        f"sys.executed_traces.append({typename!r})\n"
        f"@function({typename!r})\n"
        "def f(ctx: Context, message: Message) -> None: ...\n"
    )


@pytest.fixture
def executed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Yield a list to which programs append when they are executed; modules may come from the folder ``elsewhere``."""
    names: list[str] = []
    monkeypatch.setattr(sys, "executed_traces", names, raising=False)
    monkeypatch.syspath_prepend(tmp_path / "elsewhere")
    (tmp_path / "app").mkdir()
    (tmp_path / "elsewhere").mkdir()
    forget_loaded()
    yield names
    forget_loaded()
    for name in [each for each in sys.modules if each.startswith("traced_")]:
        del sys.modules[name]


@pytest.fixture
def load(tmp_path: Path) -> Callable[[str], None]:
    """Return a function that loads a program after all others were forgotten."""

    def load(source: str) -> None:
        app = tmp_path / "app" / "app.py"
        app.write_text(source)
        forget_loaded()
        load_program(app)

    return load


def registered(typename: str) -> bool:
    """Return whether a function is registered."""
    return any(str(each.typename) == typename for each in default_functions)


@pytest.mark.usefixtures("executed")
def test_modules_from_elsewhere_keep_what_they_have_registered(
    tmp_path: Path, load: Callable[[str], None]
) -> None:
    """They are not executed again, so the next program that imports them would do without it."""
    (tmp_path / "elsewhere" / "traced_shared.py").write_text(
        defining("test.traces/shared")
        + "import functools\n"
        + "function('test.traces/partial')(functools.partial(lambda a, b, c: None, 1))\n"
        + f"VALUE = make_json_type({NUMBER!r})\n"
    )
    for _ in range(2):
        load("import traced_shared\n")

        assert registered("test.traces/shared")
        assert registered("test.traces/partial")
        assert default_types.find(NUMBER) is not None
    default_functions.forget("traced_shared")
    default_functions.remove("test.traces/partial")
    default_types.remove(NUMBER)


def test_installed_packages_are_executed_once(
    tmp_path: Path, load: Callable[[str], None], executed: list[str]
) -> None:
    """An environment may be in the program's folder, and not every package may be imported twice."""
    packages = tmp_path / "app" / "venv" / "site-packages"
    packages.mkdir(parents=True)
    (packages / "traced_package.py").write_text(defining("test.traces/package"))
    for _ in range(2):
        load(f"import sys\nsys.path.insert(0, {str(packages)!r})\nimport traced_package\n")
        sys.path.remove(str(packages))

        assert registered("test.traces/package")
    assert executed == ["test.traces/package"]
    default_functions.forget("traced_package")


def test_a_namespace_package_whose_parent_is_gone_is_no_module_of_the_program(
    tmp_path: Path, load: Callable[[str], None]
) -> None:
    """It cannot say any more where it is."""
    (tmp_path / "app").mkdir(exist_ok=True)
    (tmp_path / "elsewhere" / "traced_wares" / "taxes").mkdir(parents=True)
    load(
        f"import sys\nsys.path.insert(0, {str(tmp_path / 'elsewhere')!r})\nimport traced_wares.taxes\n"
        "del sys.path[0]\ndel sys.modules['traced_wares']\n"
    )

    forget_loaded()

    assert sys.modules.pop("traced_wares.taxes")


def test_modules_of_a_package_that_stays_are_forgotten(
    tmp_path: Path, load: Callable[[str], None], executed: list[str]
) -> None:
    """Tests may have imported the package before, which then still has its module as an attribute."""
    package = tmp_path / "app" / "traced_stays"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "logic.py").write_text(defining("test.traces/logic"))
    sys.path.insert(0, str(tmp_path / "app"))
    import traced_stays  # type: ignore[import-not-found] # noqa: PLC0415 - just made

    sys.path.remove(str(tmp_path / "app"))
    for _ in range(2):
        load("from traced_stays import logic\n")

        assert registered("test.traces/logic")
        assert traced_stays.logic is sys.modules["traced_stays.logic"]
    forget_loaded()

    assert executed == ["test.traces/logic"]
    assert not registered("test.traces/logic")
    assert sys.modules["traced_stays"] is traced_stays
    assert not hasattr(traced_stays, "logic")


def test_modules_of_a_program_are_executed_once_as_long_as_they_are_unchanged(
    tmp_path: Path, load: Callable[[str], None], executed: list[str]
) -> None:
    """Not every module may be executed twice in a process; what it has registered is there again."""
    module = tmp_path / "app" / "traced_logic.py"
    module.write_text(
        f"from statefun import *\nVALUE = make_json_type({NUMBER!r})\n{defining('test.traces/logic')}"
    )
    for _ in range(3):
        load("import traced_logic\n" + defining("test.traces/program"))

        assert registered("test.traces/logic")
        assert registered("test.traces/program")
        assert default_types.find(NUMBER) is sys.modules["traced_logic"].VALUE
        forget_loaded()
        assert not registered("test.traces/logic")
        assert default_types.find(NUMBER) is None
        assert "traced_logic" not in sys.modules
    assert executed == ["test.traces/logic", *["test.traces/program"] * 3]

    module.write_text(defining("test.traces/changed"))
    load("import traced_logic\n")

    assert executed[4:] == ["test.traces/changed"]
    assert not registered("test.traces/logic")


LOGIC = """
from statefun import *
import dataclasses
class Greeter:
    def __call__(self, ctx: Context, message: Message) -> None: ...
def shout(ctx: Context, message: Message) -> None: ...
def greet(ctx: Context, message: Message) -> None: ...
@dataclasses.dataclass
class Order:
    sku: str
@dataclasses.dataclass
class Item:
    sku: str
function("test.traces/own")(greet)
"""


@pytest.mark.usefixtures("executed")
@pytest.mark.parametrize(
    ("first", "second", "names"),
    [
        ("function('test.traces/a')(Greeter())", None, {"a"}),
        ("function('test.traces/a')(greet)", "function('test.traces/a')(shout)", {"a"}),
        ("function('test.traces/a')(greet)", "function('test.traces/b')(greet)", {"b"}),
        (
            f"make_json_type({NUMBER!r}, Order)",
            f"make_json_type({NUMBER!r}, Item)",
            set(),
        ),
    ],
    ids=["object", "replaced", "renamed", "type"],
)
def test_what_a_program_has_registered_of_its_modules_does_not_stay(
    tmp_path: Path, load: Callable[[str], None], first: str, second: str | None, names: set[str]
) -> None:
    """It registers the same again, or something else, such as by a variable of the environment."""
    (tmp_path / "app" / "traced_logic.py").write_text(LOGIC)
    for statement in (first, second or first, second or first):
        load(f"from traced_logic import *\n{statement}\n")

    own = [str(each.typename) for each in default_functions]
    assert {each for each in own if each.startswith("test.traces/")} == {
        f"test.traces/{each}" for each in ("own", *names)
    }
    type_ = default_types.find(NUMBER)
    assert type_ is None or type_.python_type is sys.modules["traced_logic"].Item


PLUGINS = f"""
import functools, importlib.util, pathlib, runpy, threading
from statefun import *
PLUGIN = pathlib.Path(__file__).with_name("plugin.py")
def greet(ctx: Context, message: Message) -> None: ...
spec = importlib.util.spec_from_file_location("traced_plugin", PLUGIN)
spec.loader.exec_module(importlib.util.module_from_spec(spec))
runpy.run_path(str(PLUGIN), {{"NAME": "run"}})
exec("function('test.traces/executed')(greet)", {{"function": function, "greet": greet}})
thread = threading.Thread(target=lambda: function("test.traces/thread")(greet))
thread.start()
thread.join()
@functools.cache
def once() -> None:
    function("test.traces/once")(greet)
    make_json_type({NUMBER!r}, int)
"""


@pytest.mark.usefixtures("executed")
def test_what_code_of_a_module_has_registered_is_there_again(
    tmp_path: Path, load: Callable[[str], None]
) -> None:
    """Also by executing other files, in a thread, and in a function that does it once."""
    (tmp_path / "app" / "traced_plugins.py").write_text(PLUGINS)
    (tmp_path / "app" / "plugin.py").write_text(
        "from statefun import *\nNAME = globals().get('NAME', 'plugin')\n"
        "@function(f'test.traces/{NAME}')\n"
        "def f(ctx: Context, message: Message) -> None: ...\n"
    )
    for _ in range(3):
        load("import traced_plugins\ntraced_plugins.once()\n")

        own = {str(each.typename) for each in default_functions}
        assert {each for each in own if each.startswith("test.traces/")} == {
            f"test.traces/{each}" for each in ("plugin", "run", "executed", "thread", "once")
        }
        assert default_types.find(NUMBER) is not None


@pytest.mark.usefixtures("executed")
def test_a_type_of_a_module_stays_its_own_if_others_register_it_again(
    tmp_path: Path, load: Callable[[str], None]
) -> None:
    """As the program or a module file does."""
    (tmp_path / "app" / "traced_logic.py").write_text(
        f"from statefun import *\nmake_json_type({NUMBER!r}, int)\n"
    )
    load(f"import traced_logic\nfrom statefun import *\nmake_json_type({NUMBER!r}, int)\n")
    make_json_type(NUMBER, int)
    for _ in range(2):
        load("import traced_logic\n")

        assert default_types.find(NUMBER) is not None
    forget_loaded()
    assert default_types.find(NUMBER) is None


@pytest.mark.usefixtures("executed")
def test_a_module_that_a_test_has_imported_meanwhile_is_used(
    tmp_path: Path, load: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The test and the program then have the same classes."""
    (tmp_path / "app" / "traced_logic.py").touch()
    load("import traced_logic\n")
    forget_loaded()
    monkeypatch.syspath_prepend(tmp_path / "app")
    import traced_logic  # type: ignore[import-not-found] # noqa: PLC0415 - just made

    load("import traced_logic\ntraced_logic.marked = True\n")

    assert traced_logic.marked


def test_packages_that_pip_has_installed_into_a_folder_stay(
    tmp_path: Path, load: Callable[[str], None], executed: list[str]
) -> None:
    """A program may bring its libraries along."""
    libraries = tmp_path / "app" / "libraries"
    (libraries / "traced_package-1.0.dist-info").mkdir(parents=True)
    (libraries / "traced_package").mkdir()
    (libraries / "traced_package" / "__init__.py").write_text(defining("test.traces/package"))
    for _ in range(2):
        load(f"import sys\nsys.path.insert(0, {str(libraries)!r})\nimport traced_package\n")
        sys.path.remove(str(libraries))
    forget_loaded()

    assert registered("test.traces/package")
    assert executed == ["test.traces/package"]
    default_functions.forget("traced_package")


@pytest.mark.usefixtures("executed")
def test_a_type_that_a_module_file_registers_again_is_forgotten(
    load: Callable[[str], None],
) -> None:
    """It is another object, but has the program's definition."""
    schema = {"type": "record", "name": "R", "fields": [{"name": "a", "type": "string"}]}
    load(f"from statefun import *\nmake_avro_type({NUMBER!r}, {schema!r})\n")
    type_ = default_types.find(NUMBER)
    assert make_avro_type(NUMBER, schema) is not type_
    forget_loaded()

    assert default_types.find(NUMBER) is None


@pytest.mark.usefixtures("executed")
def test_a_module_may_put_another_object_into_its_place(
    tmp_path: Path, load: Callable[[str], None]
) -> None:
    """Such an object stands for a module, and None for one that cannot be imported."""
    (tmp_path / "elsewhere" / "traced_object.py").write_text(
        "import sys\nclass Settings:\n    __slots__ = ()\nsys.modules[__name__] = Settings()\n"
    )
    load(
        defining("test.traces/objects")
        + "sys.modules['traced_none'] = None\nimport traced_object\n"
    )
    forget_loaded()

    assert not registered("test.traces/objects")
    assert "traced_object" in sys.modules


@pytest.mark.usefixtures("executed")
def test_a_module_that_fails_leaves_nothing(tmp_path: Path, load: Callable[[str], None]) -> None:
    """It may have registered something before."""
    (tmp_path / "elsewhere" / "traced_broken.py").write_text(
        defining("test.traces/broken") + "1 / 0\n"
    )
    for _ in range(2):
        with pytest.raises(ConfigurationError, match="ZeroDivisionError"):
            load("import traced_broken\n")
        forget_loaded()

        assert not registered("test.traces/broken")


@pytest.mark.usefixtures("executed")
def test_definitions_that_were_there_before_are_restored(load: Callable[[str], None]) -> None:
    """A program may register the same type again, or fail after it has registered others."""
    before = simple_type("test.traces/text", str.encode, bytes.decode)
    kept = make_json_type(NUMBER)
    again = "from statefun import *\nsimple_type('test.traces/text', str.encode, bytes.decode)\n"
    with pytest.raises(Exception, match="cannot be loaded"):
        load(f"{again}make_json_type('test.traces/Lost')\n1 / 0\n")

    assert default_types.find("test.traces/text") is not before
    forget_loaded()

    assert default_types.find("test.traces/text") is before
    assert default_types.find("test.traces/Lost") is None
    assert default_types.find(NUMBER) is kept
    assert default_types.find(StringType.typename) is StringType
    for typename in ("test.traces/text", NUMBER):
        default_types.remove(typename)
