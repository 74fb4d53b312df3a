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

Every key of every kind of component. A module file holds one YAML document for each component,
with `kind` and `spec`; `version: "1.0"` to `"3.0"` with `module` are read as well, and so is a
ConfigMap of Kubernetes whose data has a `module.yaml`. `${NAME}` in a
value is an environment variable, `${file:/path}` the content of a file. `statefun validate` checks
files with all findings at once. The tables have the keys below `spec`; `[]` stands for the entries of
a list.

Editors with the YAML language server, such as VS Code with Red Hat's extension, check and complete a
module file by its JSON Schema, which `statefun schema > module.schema.json` writes, if the file
begins with a comment that names it:

```yaml
# yaml-language-server: $schema=module.schema.json
kind: io.statefun.kafka.v1/egress
spec: {id: com.example.docs/greets, address: "localhost:9092"}
```

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


_TRANSFORMS = """\
## Transforms

The options of each transform; [Transforms](transforms.md) says what they do. Types may begin with
`org.apache.kafka.connect.transforms.`.
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
    """Return the rows of the keys inside of a value; transforms have a table of their own."""
    if path.endswith(TRANSFORMS.name):
        return
    yield from _rows(schema, f"{path}.")
    yield from _rows(schema.get("items", {}), f"{path}[].")
    yield from _variants(schema.get("oneOf", ()), path)


def _variants(variants: Sequence[Mapping[str, Any]], path: str) -> Iterator[_Row]:
    """Return the rows of the keys of all variants; of those with one meaning in several, one."""
    if not variants:
        return
    words: dict[str, Any] = {
        "title": " or ".join(f"`{_name(variant)}`" for variant in variants),
        "description": "which one",
        "examples": [_name(variants[0])],
    }
    yield _row(f"{path}.type", words, required=True)
    takers: dict[_Row, list[str]] = {}
    for variant in variants:
        for row in _rows(variant, f"{path}."):
            if row.key != f"`{path}.type`":
                takers.setdefault(row, []).append(f"`{_name(variant)}`")
    for row, names in takers.items():
        yield row._replace(meaning=f"{row.meaning}; with type {' or '.join(names)}")


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
