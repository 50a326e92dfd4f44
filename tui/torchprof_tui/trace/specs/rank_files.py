"""Which traces a folder, a pattern or several names mean, and whether they are the ranks of one run.

The rank is read from the beginning of a file (`distributedInfo`), else from its name. Files that do not all say another
rank are never merged. Read on the way to the first frame: standard library only.
"""

from __future__ import annotations

import glob
import os
import re
import shlex
import zlib
from collections.abc import Sequence
from dataclasses import dataclass

from torchprof_tui.trace.specs.address import RANK_IN_NAME, TRACE_SUFFIXES, ListedTrace, is_remote
from torchprof_tui.trace.specs.rank_groups import group_runs

HEAD_BYTES = 64 << 10
"""Bytes read of a file: Kineto's header with sixteen devices is 10 KB, and `distributedInfo` stands in it."""

_DISTRIBUTED_INFO = re.compile(rb'"distributedInfo"\s*:\s*\{')
_TRACE_MARKER = re.compile(rb'"traceEvents"|"ph"\s*:\s*"')


class NotRanksError(ValueError):
    """These files are not the ranks of one run. `str()` is one line for the user."""


@dataclass(frozen=True, slots=True)
class RankFile:
    """A trace, and the rank that it says it is of; None where only opening it tells.

    `size` in bytes and `identity` (`Source.identity`): of what lies elsewhere, where its host told them.
    """

    spec: str
    rank: int | None
    size: int | None = None
    identity: str | None = None


@dataclass(frozen=True, slots=True)
class TraceHead:
    """The beginning of a file: whether it reads like a trace; the rank and the number of ranks, None if not there."""

    looks_like_trace: bool
    rank: int | None
    world_size: int | None


def expand_spec(spec: str) -> list[str]:
    """The traces that one name means: those in a folder, those that a pattern matches, else the name itself.

    Raises NotRanksError for a folder without any.
    """
    if spec == "-" or is_remote(spec):
        return [spec]
    if os.path.isdir(spec):
        found = _list_traces(spec)
        if not found:
            raise NotRanksError(f"{spec}: a folder, with no .json or .json.gz trace in it; name a trace file")
        return found
    if any(mark in spec for mark in "*?[") and not os.path.lexists(spec):
        found = sorted(path for path in glob.glob(spec, recursive=True) if os.path.isfile(path))
        return found or [spec]  # which will be said not to be there
    return [spec]


def resolve_rank_files(specs: Sequence[str], label: str = "") -> list[RankFile]:
    """Several traces, by rank; then those elsewhere that do not say theirs before they are opened. `of`: what the user
    called them together, a folder, for what is said.

    Raises NotRanksError where one does not say its rank, two are of one rank, or the runs had not equally many.
    """
    where = f"{label}: " if label else ""
    here = [spec for spec in specs if not is_remote(spec)]
    found: dict[int, str] = {}
    world: dict[int, str] = {}
    for spec in here:
        peeked = read_trace_head(spec)
        rank = rank_of(peeked.rank, spec)
        if rank is None:
            hint = (
                f"name one of them, such as {specs[0]}{_suggest_run_pattern(specs)}"
                if label
                else "open them one by one"
            )
            raise NotRanksError(
                f"{where}{len(specs)} traces that are not the ranks of one run: {_file_name(spec)} does not say which rank "
                f"it is, neither in distributedInfo nor in its name; {hint}"
            )
        if rank in found:
            raise NotRanksError(
                f"{where}{_file_name(found[rank])} and {_file_name(spec)} are both of rank {rank}: name one trace of each "
                f"rank{_suggest_run_pattern(specs) if label else ''}"
            )
        found[rank] = spec
        if peeked.world_size is not None:
            world.setdefault(peeked.world_size, spec)
    if len(world) > 1:
        (one, first), (other, second), *_ = world.items()
        raise NotRanksError(
            f"{where}ranks of different runs: {_file_name(first)} is of {one} ranks, {_file_name(second)} of {other}"
        )
    later = []
    for spec in specs:
        if is_remote(spec):
            rank = rank_of(None, spec)
            if rank is None or rank in found:  # a name may mean something else by its number
                later.append(RankFile(spec, None))
            else:
                found[rank] = spec
    return [RankFile(found[rank], rank) for rank in sorted(found)] + later


def _suggest_run_pattern(specs: Sequence[str]) -> str:
    """The pattern that means the newest run among these, as a shell takes it."""
    listed = [ListedTrace(spec, None, os.path.getmtime(spec) if os.path.exists(spec) else 0.0) for spec in specs]
    pattern = next((run.pattern for run in group_runs(listed) if run.pattern), "")
    return f", or the ranks of a run: {shlex.quote(pattern)}" if pattern else ""


def rank_of(recorded_rank: int | None, spec: str) -> int | None:
    """The rank that the file says, else the one in its name (`rank3`, `worker3`)."""
    if recorded_rank is not None:
        return recorded_rank
    named = RANK_IN_NAME.search(_file_name(spec))
    return int(named[1]) if named else None


def read_trace_head(path: str) -> TraceHead:
    """Look at the beginning of a file. What cannot be read says nothing."""
    try:
        with open(path, "rb") as file:
            start = file.read(HEAD_BYTES)
    except OSError:
        return TraceHead(False, None, None)
    if start[:2] == b"\x1f\x8b":
        try:
            start = zlib.decompressobj(wbits=31).decompress(start, 2 * HEAD_BYTES)
        except zlib.error:
            return TraceHead(False, None, None)
    elif start[:4] == b"\x28\xb5\x2f\xfd" or start[:6] == b"\xfd7zXZ\x00":
        return TraceHead(True, None, None)  # its name says JSON; unpacking these for a look is not worth an import
    like_trace = start.lstrip()[:1] in (b"{", b"[") and _TRACE_MARKER.search(start) is not None
    info = _DISTRIBUTED_INFO.search(start)
    if info is None:
        return TraceHead(like_trace, None, None)
    # Further in, `pg_config` lists the ranks of each group; the keys looked for stand before it or behind.
    inside = start[info.end() : info.end() + 4096]
    return TraceHead(like_trace, _parse_number(inside, b"rank"), _parse_number(inside, b"world_size"))


def _parse_number(text: bytes, key: bytes) -> int | None:
    found = re.search(rb'"' + key + rb'"\s*:\s*"?([0-9]{1,6})', text)
    return int(found[1]) if found else None


def _list_traces(folder: str) -> list[str]:
    """By name; what merely ends like a trace (a manifest, a table) is left out."""
    try:
        names = sorted(
            name for name in os.listdir(folder) if name.endswith(TRACE_SUFFIXES) and not name.startswith(".")
        )
    except OSError:
        return []
    paths = [os.path.join(folder, name) for name in names]
    return [path for path in paths if os.path.isfile(path) and read_trace_head(path).looks_like_trace]


def _file_name(spec: str) -> str:
    return os.path.basename(spec) or spec
