"""Expand a folder, a pattern or several names to trace files, and find the rank of each.

The rank is read from the beginning of a file (`distributedInfo`), else from its name. Files are merged only if each has
a rank of its own. Imported before the first frame: standard library only.

Of a local folder, its traces are listed, or those in the folders that tools make in it:

| tool | below the folder that is named |
|---|---|
| torchtitan | `iteration_10/rank0_trace.json`, `rank_0/trace.json` |
| JAX, TensorFlow | `plugins/profile/2026_01_02_03_04_05/host.trace.json.gz` |
| torch_npu | `box_77_2026_ascend_pt/ASCEND_PROFILER_OUTPUT/trace_view.json`; rank: `profiler_info_3.json` |
"""

from __future__ import annotations

import glob
import os
import re
import shlex
import stat
import zlib
from collections.abc import Iterator, Mapping, Sequence, Set

from torchprof_tui.trace.core.extensions import find_source
from torchprof_tui.trace.core.late_regex import compile_later
from torchprof_tui.trace.core.readable import read_begin
from torchprof_tui.trace.core.records import record
from torchprof_tui.trace.specs.address import (
    ListedTrace,
    is_key_averages_file,
    is_remote,
    list_local_suffixes,
    rank_in_name,
    says_position,
)
from torchprof_tui.trace.specs.runs_by_name import group_recordings

HEAD_BYTES = 64 << 10
"""Bytes read of each file: Kineto's header, which holds `distributedInfo`, is 10 KB for sixteen devices."""

NO_TRACE_IN_FOLDER = "a folder, with no .json or .json.gz trace in it; name a trace file"

_DISTRIBUTED_INFO = compile_later(rb'"distributedInfo"\s*:\s*\{')
_TRACE_MARKER = compile_later(rb'"traceEvents"|"ph"\s*:\s*"')


class NotRanksError(ValueError):
    """These files are not the ranks of one run. `str()` is one line for the user."""


@record
class RankFile:
    """Trace file and its rank, None if that is unknown until the file is opened.

    `size` (bytes) and `identity` (see `Source`): of a remote file, if its host reported them.
    """

    spec: str
    rank: int | None
    size: int | None = None
    identity: str | None = None


@record
class TraceHead:
    """Content of the beginning of a file. `rank`, `world_size`: None if `distributedInfo` is not in it."""

    looks_like_trace: bool
    rank: int | None
    world_size: int | None


def expand_spec(spec: str) -> list[str]:
    """Return the traces in a folder, the files that match a pattern, or else the name itself.

    Raises NotRanksError for a folder without traces.
    """
    if spec == "-" or is_remote(spec):
        return [spec]
    if os.path.isdir(spec):
        paths = _list_traces(spec)
        if not paths:
            raise NotRanksError(f"{spec}: {NO_TRACE_IN_FOLDER}")
        return paths
    if any(mark in spec for mark in "*?[") and not os.path.lexists(spec):
        paths = sorted(path for path in glob.glob(spec, recursive=True) if os.path.isfile(path))
        return paths or [spec]  # opening it reports that there is no such file
    return [spec]


def leave_out_unranked(specs: Sequence[str]) -> tuple[list[str], tuple[str, ...]]:
    """Return the files without the local ones that say no rank, where at least two do, and a line for each of those."""
    unranked = [
        spec for spec in specs if not is_remote(spec) and not says_position(spec) and read_trace_head(spec).rank is None
    ]
    if not unranked or len(specs) - len(unranked) < 2:
        return list(specs), ()
    lines = tuple(f"{_file_name(spec)}: says no rank, and the others do" for spec in unranked)
    return [spec for spec in specs if spec not in unranked], lines


def resolve_rank_files(
    specs: Sequence[str], label: str = "", known_ranks: Mapping[str, int] | None = None
) -> list[RankFile]:
    """Return the files by rank, followed by remote files whose rank is unknown until they are opened.

    `label`: the folder that the user named, if any, for messages. `known_ranks`: ranks of local files that neither the
    file nor its name has. Raises NotRanksError if the rank of a local file is
    unknown, if two have the same rank, or if their world sizes differ.
    """
    by_rank = _resolve_local_ranks(specs, label, known_ranks or {})
    unknown = []
    for spec in specs:
        if is_remote(spec):
            rank = rank_of(None, spec)
            if rank is None or rank in by_rank:  # the number in its name may not be a rank
                unknown.append(RankFile(spec, None))
            else:
                by_rank[rank] = spec
    return [RankFile(by_rank[rank], rank) for rank in sorted(by_rank)] + unknown


def _resolve_local_ranks(specs: Sequence[str], label: str, known_ranks: Mapping[str, int]) -> dict[int, str]:
    """Map rank → file for the local files among `specs`; see `resolve_rank_files`."""
    prefix = f"{label}: " if label else ""
    by_rank: dict[int, str] = {}
    by_world_size: dict[int, str] = {}
    for spec in specs:
        if is_remote(spec):
            continue
        head = read_trace_head(spec)
        rank = rank_of(head.rank, spec)
        rank = known_ranks.get(spec) if rank is None else rank
        if rank is None:
            hint = (
                f"name one of them, such as {specs[0]}{_suggest_run_pattern(specs)}"
                if label
                else "open them one by one"
            )
            raise NotRanksError(
                f"{prefix}{len(specs)} traces that are not the ranks of one run: {_file_name(spec)} has no rank "
                f"number, neither in distributedInfo nor in its name; {hint}"
            )
        if rank in by_rank:
            raise NotRanksError(
                f"{prefix}{_file_name(by_rank[rank])} and {_file_name(spec)} are both of rank {rank}: name one trace "
                f"of each rank{_suggest_run_pattern(specs) if label else ''}"
            )
        by_rank[rank] = spec
        if head.world_size is not None:
            by_world_size.setdefault(head.world_size, spec)
    if len(by_world_size) > 1:
        (one, first), (other, second), *_ = by_world_size.items()
        raise NotRanksError(
            f"{prefix}ranks of different runs: {_file_name(first)} is of {one} ranks, {_file_name(second)} of {other}"
        )
    return by_rank


def _suggest_run_pattern(specs: Sequence[str]) -> str:
    """Return a hint with the shell-quoted pattern of the newest run among these files, "" if there is none."""
    listing = [ListedTrace(spec, None, os.path.getmtime(spec) if os.path.exists(spec) else 0.0) for spec in specs]
    pattern = next((run.pattern for run in group_recordings(listing).all if run.pattern), "")
    return f", or the ranks of a run: {shlex.quote(pattern)}" if pattern else ""


def rank_of(recorded_rank: int | None, spec: str) -> int | None:
    """Return the rank recorded in the file, else the one in its name (`rank3`, `worker3`)."""
    return rank_in_name(spec) if recorded_rank is None else recorded_rank


_MAX_OTHER_BYTES = 1 << 20  # bytes of a file beside the traces that are read to tell whether it is JSON of another kind
_PACKET_TAG = b"\x0a"  # what a Perfetto trace begins with, but text may too


def read_trace_head(path: str) -> TraceHead:
    """Read the beginning of a file. Of an unreadable file, all fields are empty."""
    try:
        start = read_begin(path, HEAD_BYTES)
    except OSError:
        return TraceHead(False, None, None)
    if start[:2] == b"\x1f\x8b":
        try:
            start = zlib.decompressobj(wbits=31).decompress(start, 2 * HEAD_BYTES)
        except zlib.error:
            return TraceHead(False, None, None)
    elif start[:4] == b"\x28\xb5\x2f\xfd" or start[:6] == b"\xfd7zXZ\x00":
        # zstd, xz: trust the suffix, as importing a decompressor takes too long here
        return TraceHead(True, None, None)
    if start[:1] == _PACKET_TAG and ".pftrace" in _file_name(path):
        return TraceHead(True, None, None)  # packets say nothing of ranks
    if start and start.lstrip()[:1] not in (b"{", b"["):
        return TraceHead(find_source(start) is not None, None, None)
    looks_like_trace = _TRACE_MARKER.search(start) is not None
    info = _DISTRIBUTED_INFO.search(start)
    if info is None:
        return TraceHead(looks_like_trace, None, None)
    # `pg_config`, whose groups list `ranks`, may come before or after the keys `rank` and `world_size`.
    inside = start[info.end() : info.end() + 4096]
    return TraceHead(looks_like_trace, _parse_number(inside, b"rank"), _parse_number(inside, b"world_size"))


def _parse_number(text: bytes, key: bytes) -> int | None:
    match = re.search(rb'"' + key + rb'"\s*:\s*"?([0-9]{1,6})', text)
    return int(match[1]) if match else None


def explain_unreadable_ranks(folder: str, listed: Set[str]) -> Iterator[tuple[str, str]]:
    """Yield the name of each file that is named as the trace of a rank, and why it is none."""
    suffixes = list_local_suffixes()
    for name in sorted(os.listdir(folder)):
        path = os.path.join(folder, name)
        if path in listed or not name.endswith(suffixes) or name.startswith(".") or os.path.isdir(path):
            continue
        if rank_in_name(name) is not None and not is_key_averages_file(name):
            reason = _find_reason(path)
            if reason:
                yield name, reason


def _find_reason(path: str) -> str:
    """Say why a file is no trace; "" for JSON of another kind, such as a manifest."""
    try:
        status = os.stat(path)
        if not stat.S_ISREG(status.st_mode):
            return "not a file"
        begin = read_begin(path, _MAX_OTHER_BYTES)
    except OSError as error:
        return error.strerror or str(error)
    if not begin:
        return "the file is empty"
    import json  # deferred: not needed before the first frame

    try:
        json.loads(begin)
    except (ValueError, RecursionError):
        return "not a trace, or one that is damaged from its begin on"
    return ""


def _list_traces(folder: str) -> list[str]:
    """List the traces in a folder by name. Excludes other files with a trace's suffix (manifests, tables)."""
    try:
        suffixes = list_local_suffixes()
        names = sorted(name for name in os.listdir(folder) if name.endswith(suffixes) and not name.startswith("."))
    except OSError:
        return []
    paths = [os.path.join(folder, name) for name in names]
    return [path for path in paths if os.path.isfile(path) and read_trace_head(path).looks_like_trace]


def _file_name(spec: str) -> str:
    return os.path.basename(spec) or spec


MAX_DEPTH = 4  # folders below the one that is named: JAX has three, torchtitan with replicas three
MAX_ENTRIES = 20_000  # directory entries that are looked at, so that a home folder does not take for ever

_ASCEND_OUTPUT = "ASCEND_PROFILER_OUTPUT"
_ASCEND_TRACE = "trace_view.json"
_ASCEND_FOLDER = compile_later(r"_ascend_(?:pt|ms)$")
_ASCEND_INFO = compile_later(r"profiler_info_([0-9]{1,6})\.json")

_SKIPPED_FOLDERS = frozenset({"capture_traces", "node_modules", "__pycache__", "site-packages"})
"""Captures of graphs are no recordings of their own; the others hold no traces."""


def list_local_traces(folder: str) -> list[ListedTrace]:
    """List the traces in a folder by name, those in the folders below it where it has none itself.

    Excludes other files with a trace's suffix (manifests, tables).
    """
    budget = [MAX_ENTRIES]
    level = [folder]
    found: list[ListedTrace] = []
    remaining = MAX_DEPTH + 1
    while remaining:
        scanned = [_scan(path, budget) for path in level]
        here = [trace for traces, _ in scanned for trace in traces]
        # Others may lie deeper: `iteration_10` may have one more folder than `iteration_20`.
        remaining = MAX_DEPTH if here and not found else remaining - 1
        found += here
        # Folders below a folder with traces, such as captures, hold files of these traces.
        level = [below for traces, folders in scanned if not traces for below in folders]
    return sorted(found, key=lambda trace: trace.spec)


def _scan(folder: str, budget: list[int]) -> tuple[list[ListedTrace], list[str]]:
    """Return the traces in a folder and the folders to look into. `budget[0]`: entries that may still be looked at."""
    try:
        with os.scandir(folder) as entries:
            listed = [entry for entry, _ in zip(entries, range(max(budget[0], 0)), strict=False)]
    except OSError:
        return [], []
    budget[0] -= len(listed)
    names = [entry.name for entry in listed]
    if _ASCEND_FOLDER.search(folder) and _ASCEND_OUTPUT in names:
        return [], [os.path.join(folder, _ASCEND_OUTPUT)]  # the raw data of the devices is in folders beside it
    rank = _read_ascend_rank(folder)
    suffixes = list_local_suffixes()
    traces, folders = [], []
    for entry in sorted(listed, key=lambda entry: entry.name):
        if entry.name.startswith("."):
            continue
        try:
            if entry.is_dir(follow_symlinks=False):
                folders += [] if entry.name in _SKIPPED_FOLDERS else [entry.path]
            elif entry.name.endswith(suffixes) and entry.is_file() and not is_key_averages_file(entry.name):
                head = read_trace_head(entry.path)
                if head.looks_like_trace:
                    status = entry.stat()
                    recorded = rank if head.rank is None and entry.name == _ASCEND_TRACE else head.rank
                    traces.append(ListedTrace(entry.path, status.st_size, status.st_mtime, None, recorded))
        except OSError:
            continue
    return traces, folders


def _read_ascend_rank(folder: str) -> int | None:
    """Return the rank that torch_npu wrote into a file name beside the folder of its output, None if there is none."""
    parent, name = os.path.split(os.path.abspath(folder))
    if name != _ASCEND_OUTPUT:
        return None
    try:
        matches = [match for other in os.listdir(parent) if (match := _ASCEND_INFO.fullmatch(other))]
    except OSError:
        return None
    return int(matches[0][1]) if matches else None
