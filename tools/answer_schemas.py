"""The schemas of all answers: generated from their records, shipped as `schemas/*.json`.

read_schema("check")     # the shipped file, JSON Schema draft 2020-12
build_schema("check")    # the same from the records; `python -m tools.json_pages` writes the files
"""

from __future__ import annotations

import inspect
import json
from importlib.resources import files
from typing import Any

import msgspec

from torchprof_tui.answers.chain import Chain
from torchprof_tui.answers.check import Check, PatternList
from torchprof_tui.answers.critical_path import CriticalPath
from torchprof_tui.answers.diff import Diff
from torchprof_tui.answers.files import CacheUse, Export, Slice
from torchprof_tui.answers.info import FolderListing, Info
from torchprof_tui.answers.learn import CaseListing, LearnCase
from torchprof_tui.answers.memory import AliveMemory, Snapshot
from torchprof_tui.answers.record import UNIT_KEYWORD, Answer
from torchprof_tui.answers.recording import Recording
from torchprof_tui.answers.table import TABLES
from torchprof_tui.answers.what_if import WhatIf
from torchprof_tui.trace.core.extensions import import_target, list_commands

ANSWERS: dict[str, tuple[type[Answer], ...]] = {
    "info": (Info, FolderListing),
    "table": tuple(TABLES.values()),
    "check": (Check, PatternList),
    "chain": (Chain,),
    "critical-path": (CriticalPath,),
    "what-if": (WhatIf,),
    "diff": (Diff,),
    "memory": (AliveMemory, Snapshot),
    "slice": (Slice,),
    "export": (Export,),
    "run": (Recording,),
    "learn": (CaseListing, LearnCase),
    "cache": (CacheUse,),
}
"""Command → the answers that it prints; their names are the keys of the schema's definitions. `list_answers` adds
those of extensions."""

_UNIT_BY_SUFFIX = {
    "ns": "ns",
    "us": "µs",
    "bytes": "bytes",
    "share": "share",
    "gb_s": "GB/s",
    "tflops": "TFLOP/s",
    "flops": "FLOP",
    "seconds": "s",
}

_DRAFT = "https://json-schema.org/draft/2020-12/schema"
_DEFINITION = "#/$defs/{name}"


def list_answers() -> dict[str, tuple[type[Answer], ...]]:
    """List the answers of all commands, of the program and of extensions."""
    declared = [each for each in list_commands()[0].values() if each.answers and each.name not in ANSWERS]
    return ANSWERS | {command.name: import_target(command, command.answers) for command in declared}


def build_schema(command: str) -> dict[str, Any]:
    """Build the schema of a command's answers. Raises KeyError for a command without `--json`."""
    documents, definitions = msgspec.json.schema_components(list_answers()[command], ref_template=_DEFINITION)
    for definition in definitions.values():
        if "description" in definition:
            definition["description"] = " ".join(inspect.cleandoc(definition["description"]).split())
        for field in definition.get("properties", {}).values():
            # null is no choice of a field that is left out where it is None
            if field.pop("default", ...) is None:
                choices = [choice for choice in field.pop("anyOf") if choice != {"type": "null"}]
                field.update({"anyOf": choices} if len(choices) > 1 else choices[0])
    return {
        "$schema": _DRAFT,
        "$id": f"urn:torchprof-tui:{command}:{find_version(command)}",
        "title": f"torchprof-tui {command} --json",
        **(documents[0] if len(documents) == 1 else {"anyOf": list(documents)}),
        "$defs": _move_null_last(dict(sorted(definitions.items()))),
    }


def find_version(command: str) -> int:
    """Find the number of the form of a command's answers: the end of their tag."""
    return int(str(list_answers()[command][0].__struct_config__.tag).rpartition("/")[2])


def _move_null_last(schema: Any) -> Any:
    """Return a schema in which null is the last choice: its place depends on the version of msgspec."""
    if isinstance(schema, list):
        return [_move_null_last(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    moved = {key: _move_null_last(each) for key, each in schema.items()}
    if isinstance(moved.get("anyOf"), list):
        moved["anyOf"].sort(key=lambda choice: choice == {"type": "null"})
    return moved


def format_schema(command: str) -> str:
    """Format the schema as the text of its file."""
    return json.dumps(build_schema(command), indent=1, ensure_ascii=False) + "\n"


def read_schema(command: str) -> dict[str, Any]:
    """Read the schema that is shipped with the program. Raises FileNotFoundError for a command without `--json`."""
    text = (files("torchprof_tui") / "schemas" / f"{command}.json").read_text(encoding="utf-8")
    schema: dict[str, Any] = json.loads(text)
    return schema


def find_unit(name: str, schema: dict[str, Any]) -> str:
    """Find the unit of a field: what its schema declares, else the ending of its name; "" for none."""
    declared = schema.get(UNIT_KEYWORD)
    if declared is not None:
        return str(declared)
    return next((unit for end, unit in _UNIT_BY_SUFFIX.items() if name == end or name.endswith(f"_{end}")), "")
