# SPDX-License-Identifier: Apache-2.0
"""Generate the JSON Schema of module files and docs/module-yaml.md from the declared keys."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from statefun.module.schema import module_schema

ROOT = Path(__file__).resolve().parent.parent
_INTRODUCTION = """\
# module.yaml

Every key of every kind of component. A module file holds one YAML document for each component,
with `kind` and `spec`; `version: "1.0"` to `"3.0"` with `module` are read as well. `${NAME}` in a
value is an environment variable, `${file:/path}` the content of a file. `statefun validate` checks
files with all findings at once; `statefun schema` prints the JSON Schema for editors. The tables have
the keys below `spec`; `[]` stands for the entries of a list.

This page is made from the code that reads the files (`make docs`).
"""


class _Row(NamedTuple):
    key: str
    type: str
    default: str
    example: str
    meaning: str


def documents() -> dict[Path, str]:
    """Return the text of every generated file."""
    schema = module_schema()
    return {
        ROOT / "statefun" / "module" / "module.schema.json": json.dumps(schema, indent=1) + "\n",
        ROOT / "docs" / "module-yaml.md": _page(schema),
    }


def _page(schema: Mapping[str, Any]) -> str:
    parts = [_INTRODUCTION]
    for document in schema["oneOf"]:
        kind = document["title"]
        if "spec" not in document["properties"]:
            continue
        parts.append(f"## {kind}\n")
        rows = [_Row("Key", "Type", "Default", "Example", "Meaning"), _Row(*("---",) * 5)]
        rows += _rows(document["properties"]["spec"], "")
        parts.append("".join(f"| {' | '.join(row)} |\n" for row in rows))
    return "\n".join(parts)


def _rows(schema: Mapping[str, Any], path: str) -> Iterator[_Row]:
    for name, value in schema.get("properties", {}).items():
        if "const" not in value:
            required = name in schema["required"]
            yield _row(f"{path}{name}", value, required=required)
            yield from _below(value, f"{path}{name}")


def _below(schema: Mapping[str, Any], path: str) -> Iterator[_Row]:
    """Return the rows of the keys inside of a value."""
    yield from _rows(schema, f"{path}.")
    yield from _rows(schema.get("items", {}), f"{path}[].")
    variants = schema.get("oneOf", ())
    if variants:
        names = [variant["properties"]["type"]["const"] for variant in variants]
        words: dict[str, Any] = {
            "title": " or ".join(f"`{name}`" for name in names),
            "description": "which one",
        }
        words["examples"] = names[:1]
        yield _row(f"{path}.type", words, required=True)
    told = set()
    for variant in variants:
        for row in _rows(variant, f"{path}."):
            takers = [
                f"`{other['properties']['type']['const']}`"
                for other in variants
                if row.key.rpartition(".")[2].strip("`") in other["properties"]
            ]
            if row.key not in told:
                told.add(row.key)
                yield row._replace(meaning=f"{row.meaning}; with type {' or '.join(takers)}")


def _row(path: str, value: Mapping[str, Any], *, required: bool) -> _Row:
    if required:
        default = "required"
    elif "default" in value:
        default = _code(value["default"])
    else:
        default = value.get("$comment", "(none)").strip("()")
    examples = value.get("examples", ())
    example = _code(examples[0]) if examples else ""
    meaning = value.get("description", "")
    cells = (f"`{path}`", value.get("title", "text"), default, example, meaning)
    return _Row(*(cell.replace("|", "\\|").replace("<", "&lt;") for cell in cells))


def _code(value: object) -> str:
    """Write a value as YAML would have it in one line."""
    if isinstance(value, list):
        text = f"[{', '.join(_code(item).strip('`') for item in value)}]"
    elif isinstance(value, dict):
        pairs = (f"{name}: {_code(item).strip('`')}" for name, item in value.items())
        text = f"{{{', '.join(pairs)}}}"
    else:
        text = str(value).lower() if isinstance(value, bool) else str(value)
    return f"`{text}`"


if __name__ == "__main__":
    for path, text in documents().items():
        path.write_text(text)
