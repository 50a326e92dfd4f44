"""Group the traces of a listing into the ranks of runs by name, without opening them.

The names of a run's ranks differ only in the rank and in timestamps.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from torchprof_tui.trace.specs.address import RANK_IN_NAME, ListedTrace

_TIMESTAMP = re.compile(r"[0-9]{9,}")
"""Seconds (since 2001) or finer units: TensorBoard's trace handler appends such a number to each worker's name."""

_GLOB_MAGIC = re.compile(r"[*?\[\]]")


@dataclass(frozen=True, slots=True)
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
        if self.pattern:
            return self.pattern
        first = self.traces[0].spec
        begin = len(first) - len(first.rpartition("/")[2])
        match = RANK_IN_NAME.search(first, begin)
        return first if match is None else f"{first[: match.start(1)]}*{first[match.end(1) :]}"

    @property
    def specs(self) -> list[str]:
        """Names that open the run."""
        return [self.pattern] if self.pattern else [trace.spec for trace in self.traces]


def group_runs(listing: Sequence[ListedTrace]) -> list[RankRun]:
    """Return the runs of at least two ranks, newest first.

    A run recorded several times, to files with different timestamps, gives several runs. If its ranks have different
    numbers of files, these cannot be assigned and give no run.
    """
    groups: dict[str, dict[int, list[ListedTrace]]] = {}
    for trace in listing:
        if trace.rank is not None:
            groups.setdefault(_wildcard_spec(trace.spec), {}).setdefault(trace.rank, []).append(trace)
    runs = []
    for by_rank in groups.values():
        recordings = {len(traces) for traces in by_rank.values()}
        if len(by_rank) < 2 or len(recordings) > 1:
            continue
        ordered = [sorted(by_rank[rank], key=_timestamp_sort_key) for rank in sorted(by_rank)]
        runs += [RankRun(traces, _find_exact_pattern(traces, listing)) for traces in zip(*ordered, strict=True)]
    return sorted(runs, key=lambda run: (-run.modified, run.traces[0].spec))


def _wildcard_spec(spec: str) -> str:
    """Replace the rank and the timestamps of a name by `*`: equal for all ranks of a run."""
    folder, slash, name = spec.rpartition("/")
    match = RANK_IN_NAME.search(name)
    if match is None:
        return spec
    return f"{folder}{slash}{_TIMESTAMP.sub('*', name[: match.start(1)])}*{_TIMESTAMP.sub('*', name[match.end(1) :])}"


def _timestamp_sort_key(trace: ListedTrace) -> tuple[list[int], str]:
    return [int(digits) for digits in _TIMESTAMP.findall(trace.spec.rpartition("/")[2])], trace.spec


def _find_exact_pattern(traces: Sequence[ListedTrace], listing: Sequence[ListedTrace]) -> str:
    """Return the pattern that matches these traces and no others of the listing, "" if there is none."""
    if any(_GLOB_MAGIC.search(trace.spec) for trace in traces):
        return ""
    pattern = _wildcard_spec(traces[0].spec)
    depth = pattern.count("/")
    matched = {trace.spec for trace in listing if fnmatchcase(trace.spec, pattern) and trace.spec.count("/") == depth}
    return pattern if matched == {trace.spec for trace in traces} else ""
