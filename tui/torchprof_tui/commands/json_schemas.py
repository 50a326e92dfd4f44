"""The schemas of all `--json` answers: generated from the records of the commands, shipped as `schemas/*.json`.

read_schema("check")     # the shipped file, JSON Schema draft 2020-12
build_schema("check")    # the same from the records; `python -m tools.json_pages` writes the files
"""

from __future__ import annotations

import inspect
import json
from importlib.resources import files
from typing import Any

import msgspec

from torchprof_tui.commands.cache.document import CacheDocument
from torchprof_tui.commands.chain.records import ChainDocument
from torchprof_tui.commands.check.records import CheckDocument, PatternListDocument
from torchprof_tui.commands.common.json_document import Document
from torchprof_tui.commands.critical_path.records import CriticalPathDocument
from torchprof_tui.commands.diff.records import DiffDocument
from torchprof_tui.commands.export.document import ExportDocument
from torchprof_tui.commands.fleet.records import FleetDocument
from torchprof_tui.commands.info.records import FolderDocument, InfoDocument
from torchprof_tui.commands.memory.records import MemoryTraceDocument, SnapshotDocument
from torchprof_tui.commands.run.document import RunDocument
from torchprof_tui.commands.slice.document import SliceDocument
from torchprof_tui.commands.table.records import (
    ArrivalsDocument,
    CallsDocument,
    CollectivesDocument,
    CopiesDocument,
    KernelsDocument,
    MemoryDocument,
    RepetitionsDocument,
)
from torchprof_tui.commands.what_if.records import WhatIfDocument

DOCUMENTS: dict[str, tuple[type[Document], ...]] = {
    "info": (InfoDocument, FolderDocument),
    "table": (
        CallsDocument,
        KernelsDocument,
        CopiesDocument,
        CollectivesDocument,
        MemoryDocument,
        ArrivalsDocument,
        RepetitionsDocument,
    ),
    "check": (CheckDocument, PatternListDocument),
    "chain": (ChainDocument,),
    "critical-path": (CriticalPathDocument,),
    "what-if": (WhatIfDocument,),
    "diff": (DiffDocument,),
    "fleet": (FleetDocument,),
    "memory": (MemoryTraceDocument, SnapshotDocument),
    "slice": (SliceDocument,),
    "export": (ExportDocument,),
    "run": (RunDocument,),
    "cache": (CacheDocument,),
}
"""Command → the documents that it prints; their names are the keys of the schema's definitions."""

_DRAFT = "https://json-schema.org/draft/2020-12/schema"
_DEFINITION = "#/$defs/{name}"


def build_schema(command: str) -> dict[str, Any]:
    """Build the schema of a command's answers. Raises KeyError for a command without `--json`."""
    documents, definitions = msgspec.json.schema_components(DOCUMENTS[command], ref_template=_DEFINITION)
    for definition in definitions.values():
        if "description" in definition:
            definition["description"] = " ".join(inspect.cleandoc(definition["description"]).split())
    return {
        "$schema": _DRAFT,
        "$id": f"urn:torchprof-tui:{command}:1",
        "title": f"torchprof-tui {command} --json",
        **(documents[0] if len(documents) == 1 else {"anyOf": list(documents)}),
        "$defs": _move_null_last(dict(sorted(definitions.items()))),
    }


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
