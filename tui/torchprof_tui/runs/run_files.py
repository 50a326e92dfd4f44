"""Types of the files in a run's folder: `manifest.json` and `request.json`.

A run folder may come from another machine or another version, so the files are read through
`trace.core.typed_json`. Unknown fields are ignored; what a newer version added is lost, which is reported.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

import msgspec
from msgspec import Meta

from torchprof_tui.trace.core.typed_json import Count, ExitStatus, Path, Seconds, Text, Words

MANIFEST_FILE = "manifest.json"
REQUEST_FILE = "request.json"

MANIFEST_VERSION = 1
REQUEST_VERSION = 1

MAX_MANIFEST_BYTES = 8 << 20
"""A run that records ten thousand cycles writes 4 MB."""

MAX_REQUEST_BYTES = 1 << 20
"""Linux takes command lines of at most 2 MB; those of a training program have some kilobytes."""

MAX_TRACES = 100_000
MAX_SCRIPT_TRACES = 1_000
"""Each is looked up on the disk."""


class KeptTrace(msgspec.Struct, frozen=True):
    """One trace of a run, with torch's table; paths are relative to the run's folder."""

    trace: Path
    table: Text | None = None


class Manifest(msgspec.Struct, frozen=True):
    """What one process of a run recorded. `script_traces`: absolute paths of traces that the program wrote itself."""

    schema: Count = MANIFEST_VERSION
    rank: Count | None = None
    started: Annotated[datetime, Meta(tz=True)] | None = None
    seconds: Seconds | None = None
    ended: Text | None = None
    exit_status: ExitStatus | None = None
    kept: Annotated[tuple[KeptTrace, ...], Meta(max_length=MAX_TRACES)] = ()
    script_traces: Annotated[tuple[Path, ...], Meta(max_length=MAX_SCRIPT_TRACES)] = ()
    memory_snapshot: Text | None = None


class RequestFile(msgspec.Struct, frozen=True):
    """A request as it is stored: the command, the harness's options, the interpreter, and the folder it was made in."""

    command: Words
    cwd: Path
    options: Words = ()
    python: Text | None = None
    output: Text = ""
    schema: Count = REQUEST_VERSION
