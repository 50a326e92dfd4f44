"""Read what a run saved from the manifests in its folder.

A run folder may come from another machine or another version, so its files are read through `trace.core.typed_json`.
Unknown fields are ignored; what a newer version added is lost, which is reported.
"""

from __future__ import annotations

import os
import re
from datetime import datetime
from typing import Annotated

import msgspec
from msgspec import Meta

from torchprof_tui.trace.core.errors import UnreadableFileError
from torchprof_tui.trace.core.records import record
from torchprof_tui.trace.core.typed_json import (
    Count,
    ExitStatus,
    Path,
    Seconds,
    Text,
    Words,
    explain_version,
    read_typed_file,
)
from torchprof_tui.trace.core.user_files import make_absolute

MANIFEST_FILE = "manifest.json"
REQUEST_FILE = "request.json"

MANIFEST_VERSION = 1
REQUEST_VERSION = 1

MAX_MANIFEST_BYTES = 8 << 20  # a run that records ten thousand cycles writes 4 MB

MAX_REQUEST_BYTES = 1 << 20
"""Linux takes command lines of at most 2 MB; those of a training program have some kilobytes."""

MAX_TRACES = 100_000
MAX_SCRIPT_TRACES = 1_000  # each is looked up on the disk


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


MAX_RANKS = 16_384  # manifests of ranks that are read; more than any job that was recorded has

_RANK_MANIFEST = re.compile(r"manifest\.rank([0-9]{1,9})\.json")


@record
class RunResult:
    """How a run ended and what it saved. Paths are absolute; `traces` are sorted by rank, then by time.

    `exit_status` is the program's own, or 128 plus the number of the signal that ended it. `end_reason` is "stopped" if
    the program was stopped because its recording was complete, "interrupted", …; None if it was killed.
    """

    folder: str | None
    traces: tuple[str, ...]
    tables: tuple[str, ...]
    exit_status: int
    seconds: float
    end_reason: str | None
    command: tuple[str, ...]
    traces_to_open: tuple[str, ...] = ()
    """The traces to show: the first one, or with several ranks the first of each, which cover the same time."""
    problems: tuple[str, ...] = ()
    """One line for each manifest that is unreadable or of a newer version."""
    snapshots: tuple[str, ...] = ()
    """Memory snapshots, by rank."""


def read_result(folder: str | None, status: int, seconds: float, command: tuple[str, ...]) -> RunResult:
    """Read the result of a run that ended with `status` as `subprocess` counts it, after `seconds`."""
    manifests, problems = _read_manifests(folder) if folder is not None else ([], [])
    traces: list[str] = []
    tables: list[str] = []
    first_traces: list[str] = []
    for manifest in manifests:
        trace_count = len(traces)
        traces += [os.path.join(folder or "", kept.trace) for kept in manifest.kept]
        tables += [os.path.join(folder or "", kept.table) for kept in manifest.kept if kept.table]
        # A program that profiles itself wrote its own traces, whose rank is unknown.
        traces += [path for path in manifest.script_traces if not manifest.kept and os.path.exists(path)]
        first_traces += traces[trace_count : trace_count + 1] if manifest.kept else []
    return RunResult(
        make_absolute(folder) if folder is not None else None,
        tuple(traces),
        tuple(tables),
        status if status >= 0 else 128 - status,
        seconds,
        next((manifest.ended for manifest in manifests if manifest.ended), None),
        command,
        tuple(first_traces or traces[:1]),
        tuple(problems),
        tuple(os.path.join(folder or "", each.memory_snapshot) for each in manifests if each.memory_snapshot),
    )


def read_manifest(folder: str, name: str = MANIFEST_FILE) -> tuple[Manifest, str | None]:
    """Read one manifest. Returns (the manifest, a line about a newer version).

    Raises UnreadableFileError if it is no manifest, OSError if it cannot be read.
    """
    manifest = read_typed_file(os.path.join(folder, name), Manifest, MAX_MANIFEST_BYTES)
    return manifest, explain_version(name, manifest.schema, MANIFEST_VERSION)


def _read_manifests(folder: str) -> tuple[list[Manifest], list[str]]:
    """Read the manifests of all recorded processes, by rank: one `manifest.json`, or several `manifest.rankN.json`.

    Returns (the manifests, one line for each problem).
    """
    try:
        names = os.listdir(folder)
    except OSError:
        return [], []
    ranks = sorted((int(match[1]), name) for name in names if (match := _RANK_MANIFEST.fullmatch(name)))
    manifests: list[Manifest] = []
    problems: list[str] = []
    for name in [name for _, name in ranks[:MAX_RANKS]] or [MANIFEST_FILE]:
        try:
            manifest, problem = read_manifest(folder, name)
            manifests.append(manifest)
            problems += [] if problem is None else [problem]
        except FileNotFoundError:
            continue
        except UnreadableFileError as error:
            problems.append(str(error))
        except OSError as error:
            problems.append(f"{name}: {error.strerror}")
    return sorted(manifests, key=lambda manifest: manifest.rank or 0), problems
