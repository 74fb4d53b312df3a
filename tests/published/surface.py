# SPDX-License-Identifier: Apache-2.0
"""Prints what the published package offers: modules, public names, their members and parameters."""

import importlib
import inspect
import json
import pkgutil

import statefun


def parameters(thing):
    """Return the names of parameters, without ``self`` and without starred ones."""
    try:
        found = inspect.signature(thing).parameters.values()
    except (TypeError, ValueError):
        return []
    starred = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return [each.name for each in found if each.kind not in starred and each.name != "self"]


def members(thing):
    """Return the members of a class with their parameters."""
    names = (
        [name for name in dir(thing) if not name.startswith("_")] if isinstance(thing, type) else []
    )
    return {name: parameters(getattr(thing, name)) for name in names}


def is_own(value, module):
    """Return whether a module has made a value: generated classes say so without the package."""
    if isinstance(value, dict):
        return True
    return getattr(value, "__module__", "") in {f"statefun.{module}", module}


modules = {
    found.name: sorted(
        name
        for name, value in vars(importlib.import_module(f"statefun.{found.name}")).items()
        if not name.startswith("_") and is_own(value, found.name)
    )
    for found in pkgutil.iter_modules(statefun.__path__)
}
public = {
    name: {"parameters": parameters(value), "members": members(value)}
    for name, value in vars(statefun).items()
    if not name.startswith("_") and not inspect.ismodule(value)
}
print(json.dumps({"modules": modules, "public": public}))
