# SPDX-License-Identifier: Apache-2.0
"""The JSON Schema of module files, with which editors complete and check module files.

The schema is made from the declarations of keys that are also used to read module files.
``module.schema.json`` next to this module is the text of the schema, for tools that do not run Python.
"""

from __future__ import annotations

from typing import Any

from statefun.module.kinds.catalogue import own_kinds
from statefun.module.kinds.transforms import TRANSFORM

_DIALECT = "https://json-schema.org/draft/2020-12/schema"


def module_schema() -> dict[str, Any]:
    """Return the schema of one YAML document of a module file.

    Documents of the older formats, with ``version`` and ``module``, may contain anything.

    >>> schema = module_schema()
    >>> schema["oneOf"][0]["properties"]["kind"]
    {'const': 'io.statefun.kafka.v1/ingress'}
    >>> schema["oneOf"][0]["properties"]["spec"]["required"]
    ['id', 'topics']
    """
    current = [
        {
            "title": kind.name,
            "type": "object",
            "properties": {"kind": {"const": kind.name}, "spec": kind.shape.schema},
            "required": ["kind", "spec"],
            "additionalProperties": False,
        }
        for kind in own_kinds()
    ]
    older = {
        "title": "a document of an older format",
        "type": "object",
        "properties": {"version": {"enum": ["1.0", "2.0", "3.0", 1.0, 2.0, 3.0]}, "module": {}},
        "required": ["version", "module"],
    }
    return {
        "$schema": _DIALECT,
        "title": "statefun module",
        "oneOf": [*map(_referring, current), older],
        "$defs": {"transform": TRANSFORM.schema},
    }


def _referring(schema: Any) -> Any:
    """Return a schema with references instead of copies of the schema of transforms, to keep it small."""
    if schema == TRANSFORM.schema:
        return {"$ref": "#/$defs/transform"}
    if isinstance(schema, dict):
        return {name: _referring(each) for name, each in schema.items()}
    return [_referring(each) for each in schema] if isinstance(schema, list) else schema
