# SPDX-License-Identifier: Apache-2.0
"""Pickles functions by value (with their code), with the copy of cloudpickle that PySpark ships.

Spark's workers have the same copy. Modules that users have registered with
``pyspark.cloudpickle.register_pickle_by_value`` are pickled by value, too.
"""

from __future__ import annotations

import io
import pickle
import sys
from collections.abc import Callable, Mapping
from types import FunctionType, ModuleType
from typing import Any

from pyspark import cloudpickle


def pickle_by_value(module: ModuleType) -> None:
    """Let functions and classes of ``module`` be pickled by value, so that workers need not import it."""
    cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call] # as pyspark has it


def is_by_value(module: str) -> bool:
    """Return whether functions and classes that a module defines are pickled by value."""
    by_value = cloudpickle.list_registry_pickle_by_value()  # type: ignore[no-untyped-call] # as pyspark has it
    return module == "__main__" or module in by_value


def pickled_closure(value: object, names: Mapping[int, str] | None = None) -> bytes:
    """Pickle a value that may contain functions of the main program.

    Args:
        value: the value.
        names: the names that replace objects, by the identity of the object;
            :func:`unpickled_closure` replaces the names by objects.
    """
    file = io.BytesIO()
    _Pickler(file, names or {}).dump(value)  # type: ignore[no-untyped-call] # as pyspark has it
    return file.getvalue()


def can_be_pickled(value: object, names: Mapping[int, str] | None = None) -> bool:
    """Return whether :func:`pickled_closure` can pickle a value."""
    try:
        pickled_closure(value, names)
    except Exception:  # noqa: BLE001 - whatever an object raises that cannot be pickled
        return False
    return True


def unpickled_closure(content: bytes, named: Callable[[str], Any] | None = None) -> Any:
    """Return the value that :func:`pickled_closure` has pickled.

    Args:
        content: the pickled value.
        named: returns the object that a name stands for.
    """
    return _Unpickler(io.BytesIO(content), named).load()


class _Pickler(cloudpickle.CloudPickler):
    def __init__(self, file: io.BytesIO, names: Mapping[int, str]) -> None:
        super().__init__(file)  # type: ignore[no-untyped-call] # as pyspark has it
        self._names = names

    def persistent_id(self, obj: object) -> str | None:
        """Return the name that replaces an object in the pickle; None if the object itself is pickled."""
        return self._names.get(id(obj))

    def reducer_override(self, obj: object) -> Any:
        """Return how pickle reduces an object; refuse an object that pickle would replace by a useless name.

        Raises:
            pickle.PicklingError: if the object would be pickled as a name that workers cannot find.
        """
        reduced = super().reducer_override(obj)  # type: ignore[no-untyped-call] # as pyspark has it
        if reduced is NotImplemented and _is_name_of_program(obj):
            name = getattr(obj, "__qualname__", obj)
            raise pickle.PicklingError(
                f"workers would look up {name} by its name, and cannot find it"
            )
        return reduced


def _is_name_of_program(obj: object) -> bool:
    """Return whether pickle would replace an object of the main program by a name.

    Workers cannot import the main program, so they could not look the name up. Pickle does this with functions that
    have a cache, and with types made by ``NewType``.
    """
    module, name = getattr(obj, "__module__", None), getattr(obj, "__name__", None)
    if isinstance(obj, type | FunctionType) or not (isinstance(module, str) and name):
        return False
    program = sys.modules.get(module)
    is_program = module == "__main__" or getattr(program, "__spec__", program) is None
    return is_program and is_by_value(module) and isinstance(obj.__reduce_ex__(2), str)


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, named: Callable[[str], Any] | None) -> None:
        super().__init__(file)
        self._named = named

    def persistent_load(self, pid: Any) -> Any:
        """Return the object that a name in the pickle stands for."""
        if self._named is None:
            raise pickle.UnpicklingError(
                f"the pickle has the name {pid}, and no function to look it up was given"
            )
        return self._named(pid)
