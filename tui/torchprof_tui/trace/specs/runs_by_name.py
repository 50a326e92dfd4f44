"""Group the traces of a listing into recordings by name, without opening them.

A recording is one trace, or the ranks of a run, whose names differ only in the rank, in positions and in timestamps.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterable, Sequence
from fnmatch import fnmatchcase

from torchprof_tui.trace.core.errors import TraceError
from torchprof_tui.trace.core.late_regex import compile_later
from torchprof_tui.trace.core.records import record
from torchprof_tui.trace.specs.address import (
    ListedTrace,
    find_rank_digits,
    find_timestamps,
    says_position,
    wildcard_rank,
)

_GLOB_MAGIC = compile_later(r"[*?\[\]]")

_STAGE = compile_later(r"-(DECODE|EXTEND|PREFILL)(?=[-_.])", re.IGNORECASE)
"""SGLang records prefill and decode apart, with `--profile-by-stage`: two recordings of the same ranks."""

_RANK_FOLDER = compile_later(r"(?:rank|worker)[-_.]?[0-9]{1,6}", re.IGNORECASE)
_ASCEND_TAIL = compile_later(r"(?:^|/)[^/]*_ascend_(?:pt|ms)(?:/ASCEND_PROFILER_OUTPUT)?$")

_PERFETTO_COPY = "perfetto_trace.json.gz"
"""JAX writes the recording a second time under this name, where a link to Perfetto was wanted."""

MAX_LISTED = 6  # recordings that a message names; the others are counted


@record
class RankRun:
    """Ranks of one run, by number. `pattern`: matches them and no other trace of the listing; "" if none does."""

    traces: tuple[ListedTrace, ...]
    pattern: str

    @property
    def size(self) -> int | None:
        """Total bytes, None if the size of one is unknown."""
        sizes = [trace.size for trace in self.traces if trace.size is not None]
        return sum(sizes) if len(sizes) == len(self.traces) else None

    @property
    def modified(self) -> float:
        """Modification time of the newest, in seconds since the epoch."""
        return max(trace.modified for trace in self.traces)

    @property
    def ranks(self) -> list[int]:
        return [trace.rank for trace in self.traces if trace.rank is not None]

    @property
    def name(self) -> str:
        """Name to display: `pattern`, or the first trace's name with a star in place of its rank."""
        if self.pattern or len(self.traces) == 1:
            return self.pattern or self.traces[0].spec
        first = self.traces[0].spec
        digits = find_rank_digits(first)
        return first if digits is None else f"{first[: digits[0]]}*{first[digits[1] :]}"

    @property
    def specs(self) -> list[str]:
        """Names that open the run."""
        return [self.pattern] if self.pattern else [trace.spec for trace in self.traces]


@record
class Recordings:
    """Recordings of a folder, newest first, and one line for each trace that belongs to none of them."""

    all: tuple[RankRun, ...]
    left_out: tuple[str, ...]

    @property
    def are_parts_of_a_run(self) -> bool:
        """Whether these are files of different ranks of which some have the same: no run, and no recordings either."""
        ranks = {rank for recording in self.all for rank in recording.ranks}
        return len(self.all) > 1 and len(ranks) > 1 and all(len(recording.traces) == 1 for recording in self.all)

    def describe(self) -> str:
        """Say how many there are and what opens each of them: the end of one line for the user."""
        shown = ", ".join(_describe_recording(recording) for recording in self.all[:MAX_LISTED])
        more = f" and {len(self.all) - MAX_LISTED} more" if len(self.all) > MAX_LISTED else ""
        out = f"; {len(self.left_out)} traces that say no rank are left out" if self.left_out else ""
        return f"{len(self.all)} recordings; name one of them: {shown}{more}{out}"


def group_recordings(listing: Sequence[ListedTrace]) -> Recordings:
    """Group the traces of a folder. What says no rank beside traces that do is left out.

    Traces of one folder with different ranks are one recording, unless their names say otherwise: SGLang's stages, or
    names of several runs that have ranks in common.
    """
    recordings: list[RankRun] = []
    left_out: list[str] = []
    for traces in _split(listing, lambda trace: _recording_folder(trace.spec)):
        copies = [trace for trace in traces if _file_name(trace.spec) == _PERFETTO_COPY]
        kept = [trace for trace in traces if _file_name(trace.spec) != _PERFETTO_COPY]
        if not kept:
            kept, copies = traces, []
        left_out += [f"{_file_name(copy.spec)}: the same recording again" for copy in copies]
        ranked = [trace for trace in kept if _is_ranked(trace)]
        unranked = [trace for trace in kept if not _is_ranked(trace)]
        if not ranked:
            recordings += [RankRun((trace,), "") for trace in unranked]
            continue
        left_out += [f"{_file_name(trace.spec)}: says no rank, and the others do" for trace in unranked]
        for stage in _split(ranked, lambda trace: _find_stage(trace.spec)):
            recordings += _split_into_runs(stage, listing)
    recordings.sort(key=lambda run: (-run.modified, run.traces[0].spec))
    return Recordings(tuple(recordings), tuple(left_out))


def group_runs(listing: Sequence[ListedTrace]) -> list[RankRun]:
    """Return the runs of at least two ranks, newest first.

    A run recorded several times, to files with different timestamps, gives several runs. If its ranks have different
    numbers of files, these cannot be assigned and give no run.
    """
    groups: dict[str, dict[int, list[ListedTrace]]] = {}
    for trace in listing:
        if trace.rank is not None:
            groups.setdefault(wildcard_rank(trace.spec), {}).setdefault(trace.rank, []).append(trace)
    runs = []
    for by_rank in groups.values():
        recordings = {len(traces) for traces in by_rank.values()}
        if len(by_rank) < 2 or len(recordings) > 1:
            continue
        ordered = [
            sorted(by_rank[rank], key=lambda trace: (find_timestamps(trace.spec), trace.spec))
            for rank in sorted(by_rank)
        ]
        runs += [RankRun(traces, _find_exact_pattern(traces, listing)) for traces in zip(*ordered, strict=True)]
    return sorted(runs, key=lambda run: (-run.modified, run.traces[0].spec))


def _split_into_runs(traces: Sequence[ListedTrace], listing: Sequence[ListedTrace]) -> list[RankRun]:
    """Return one run where all ranks differ, else the runs by name and each remaining trace alone."""
    ranks = [trace.rank for trace in traces if trace.rank is not None]
    if len(set(ranks)) == len(ranks):
        ordered = tuple(sorted(traces, key=lambda trace: (-1 if trace.rank is None else trace.rank, trace.spec)))
        return [RankRun(ordered, _find_exact_pattern(ordered, listing) if len(ordered) > 1 else "")]
    runs = group_runs(traces)
    runs = [RankRun(run.traces, _find_exact_pattern(run.traces, listing)) for run in runs]
    grouped = {trace.spec for run in runs for trace in run.traces}
    return runs + [RankRun((trace,), "") for trace in traces if trace.spec not in grouped]


def _describe_recording(recording: RankRun) -> str:
    if len(recording.traces) == 1:
        return shlex.quote(recording.traces[0].spec)
    names = " ".join(shlex.quote(spec) for spec in recording.specs[:MAX_LISTED])
    more = f" and {len(recording.specs) - MAX_LISTED} more" if len(recording.specs) > MAX_LISTED else ""
    return f"{names}{more} ({len(recording.traces)} ranks)"


def _split(traces: Iterable[ListedTrace], key: Callable[[ListedTrace], str]) -> list[list[ListedTrace]]:
    groups: dict[str, list[ListedTrace]] = {}
    for trace in traces:
        groups.setdefault(key(trace), []).append(trace)
    return list(groups.values())


def _is_ranked(trace: ListedTrace) -> bool:
    return trace.rank is not None or says_position(trace.spec)


def _recording_folder(spec: str) -> str:
    """Return the folder that the ranks of a run have in common: that of the file, or the one that holds its ranks."""
    folder, _, _ = spec.rpartition("/")
    parent, slash, name = folder.rpartition("/")
    if slash and _RANK_FOLDER.fullmatch(name):
        return parent
    return _ASCEND_TAIL.sub("", folder)


def _find_stage(spec: str) -> str:
    match = _STAGE.search(spec, spec.rfind("/") + 1)
    return match[1].upper() if match else ""


def _find_exact_pattern(traces: Sequence[ListedTrace], listing: Sequence[ListedTrace]) -> str:
    """Return the pattern that matches these traces and no others of the listing, "" if there is none."""
    if any(_GLOB_MAGIC.search(trace.spec) for trace in traces):
        return ""
    wanted = {trace.spec for trace in traces}
    for timestamps in (True, False):
        pattern = wildcard_rank(traces[0].spec, timestamps)
        depth = pattern.count("/")
        matched = {each.spec for each in listing if fnmatchcase(each.spec, pattern) and each.spec.count("/") == depth}
        if matched == wanted:
            return pattern
    return ""


def _file_name(spec: str) -> str:
    return spec.rpartition("/")[2] or spec


class FolderError(TraceError):
    """The name is a remote folder, or a local one with several recordings.

    `traces`: the traces in it, newest first. `omitted`: how many more there are, at least.
    """

    def __init__(self, spec: str, traces: list[ListedTrace], omitted: int = 0) -> None:
        self.omitted = omitted
        self.spec = spec
        self.traces = traces
        recordings = group_recordings(traces)
        if len(recordings.all) > 1:
            super().__init__(f"{spec}: a folder with {recordings.describe()}")
        elif traces:
            pattern = next((run.pattern for run in recordings.all if run.pattern), "")
            ranks = f", or the ranks of a run: {shlex.quote(pattern)}" if pattern else ""
            super().__init__(f"{spec}: a folder; name a file in it, such as {traces[0].spec}{ranks}")
        else:
            super().__init__(f"{spec}: a folder, with no .json or .json.gz file in it")
