# SPDX-License-Identifier: Apache-2.0
"""Generate the JSON Schema of module files and docs/module-yaml.md from the declared keys."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from statefun.module.kinds.transforms import TRANSFORM, TRANSFORMS
from statefun.module.schema import module_schema

ROOT = Path(__file__).resolve().parent.parent
_INTRODUCTION = """\
# module.yaml

This page lists the keys of all kinds of components. A module file has one YAML document for each
component, with `kind` and `spec`. Files with `version: "1.0"` to `"3.0"` and `module` are read as well,
and so are ConfigMaps of Kubernetes whose data has a `module.yaml`, also in a `List`. In values, `${NAME}` is replaced by
an environment variable, and `${file:/path}` by the content of a file. `statefun validate` checks files,
and prints all findings at once. The tables list the keys below `spec`; `[]` stands for each entry of a
list.

Editors with the YAML language server, such as VS Code with Red Hat's extension, check and complete
module files with a JSON Schema, which `statefun schema > module.schema.json` writes. The first line of
the module file has to name the schema:

```yaml
# yaml-language-server: $schema=module.schema.json
kind: io.statefun.kafka.v1/egress
spec: {id: com.example.docs/greets, address: "localhost:9092"}
```

This page is generated from the code that reads module files (`make docs`).
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


_TRANSFORMS = """\
## Transforms

The options of each transform; [Transforms](transforms.md) describes what the transforms do. A type may
begin with `org.apache.kafka.connect.transforms.`.
"""


def _page(schema: Mapping[str, Any]) -> str:
    parts = [_INTRODUCTION]
    header = [_Row("Key", "Type", "Default", "Example", "Meaning"), _Row(*("---",) * 5)]
    for document in schema["oneOf"]:
        kind = document["title"]
        if "spec" not in document["properties"]:
            continue
        parts.append(f"## {kind}\n")
        parts.append(_table([*header, *_rows(document["properties"]["spec"], "")]))
    parts.append(_TRANSFORMS)
    parts.append(_table([*header, *_variants(TRANSFORM.schema["oneOf"], f"{TRANSFORMS.name}[]")]))
    return "\n".join(parts)


def _table(rows: Iterable[_Row]) -> str:
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def _rows(schema: Mapping[str, Any], path: str) -> Iterator[_Row]:
    for name, value in schema.get("properties", {}).items():
        if "const" not in value:
            required = name in schema["required"]
            yield _row(f"{path}{name}", value, required=required)
            yield from _below(value, f"{path}{name}")


def _below(schema: Mapping[str, Any], path: str) -> Iterator[_Row]:
    """Yield the rows of the keys inside a value; transforms have their own table."""
    if path.endswith(TRANSFORMS.name):
        return
    yield from _rows(schema, f"{path}.")
    yield from _rows(schema.get("items", {}), f"{path}[].")
    yield from _variants(schema.get("oneOf", ()), path)


def _variants(variants: Sequence[Mapping[str, Any]], path: str) -> Iterator[_Row]:
    """Yield the rows of the keys of all variants; equal rows of several variants become one row."""
    if not variants:
        return
    words: dict[str, Any] = {
        "title": " or ".join(f"`{_name(variant)}`" for variant in variants),
        "description": "selects the variant, which decides about the other keys",
        "examples": [_name(variants[0])],
    }
    yield _row(f"{path}.type", words, required=True)
    variants_of: dict[_Row, list[str]] = {}
    for variant in variants:
        for row in _rows(variant, f"{path}."):
            if row.key != f"`{path}.type`":
                variants_of.setdefault(row, []).append(f"`{_name(variant)}`")
    for row, names in variants_of.items():
        yield row._replace(meaning=f"{row.meaning}; only with type {' or '.join(names)}")


def _name(variant: Mapping[str, Any]) -> str:
    type_ = variant["properties"]["type"]
    name: str = type_["const"] if "const" in type_ else type_["enum"][0]
    return name


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
    """Return a value as code, in one line of YAML."""
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
