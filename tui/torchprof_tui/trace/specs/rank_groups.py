"""Which traces of a listing are the ranks of one run, by their names alone: what lies elsewhere is not opened for it.

The names of a run's ranks are alike but for the rank, and for the times that writers put into them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from torchprof_tui.trace.specs.address import RANK_IN_NAME, ListedTrace

_TIMESTAMP = re.compile(r"[0-9]{9,}")
"""Seconds since 2001, or finer: tensorboard's handler puts such a number behind each worker's name."""

_GLOB_MAGIC = re.compile(r"[*?\[\]]")


@dataclass(frozen=True, slots=True)
class RankRun:
    """Ranks of one run, by number. `pattern` names them and no other of the listing; "" where no pattern does."""

    traces: tuple[ListedTrace, ...]
    pattern: str

    @property
    def size(self) -> int | None:
        """Bytes of all together, None where one does not say."""
        sizes = [each.size for each in self.traces if each.size is not None]
        return sum(sizes) if len(sizes) == len(self.traces) else None

    @property
    def modified(self) -> float:
        """When the last of them was written."""
        return max(each.modified for each in self.traces)

    @property
    def ranks(self) -> list[int]:
        return [each.rank for each in self.traces if each.rank is not None]

    @property
    def name(self) -> str:
        """What opens it; where no pattern does the first one's, with a star for its rank, to be read."""
        if self.pattern:
            return self.pattern
        first = self.traces[0].spec
        begin = len(first) - len(first.rpartition("/")[2])
        named = RANK_IN_NAME.search(first, begin)
        return first if named is None else f"{first[: named.start(1)]}*{first[named.end(1) :]}"

    @property
    def specs(self) -> list[str]:
        """What opens it."""
        return [self.pattern] if self.pattern else [each.spec for each in self.traces]


def group_runs(listing: Sequence[ListedTrace]) -> list[RankRun]:
    """Runs of two ranks and more, the newest first. A run that was recorded several times, into files that differ in
    their times, is as many runs; where these cannot be told apart it is none."""
    alike: dict[str, dict[int, list[ListedTrace]]] = {}
    for each in listing:
        if each.rank is not None:
            alike.setdefault(_wildcard_spec(each.spec), {}).setdefault(each.rank, []).append(each)
    found = []
    for of_rank in alike.values():
        times = {len(traces) for traces in of_rank.values()}
        if len(of_rank) < 2 or len(times) > 1:
            continue
        ordered = [sorted(of_rank[rank], key=_timestamp_sort_key) for rank in sorted(of_rank)]
        found += [RankRun(traces, _find_exact_pattern(traces, listing)) for traces in zip(*ordered, strict=True)]
    return sorted(found, key=lambda run: (-run.modified, run.traces[0].spec))


def _wildcard_spec(spec: str) -> str:
    """What the names of one run's ranks have in common; `*` where they differ."""
    folder, slash, name = spec.rpartition("/")
    named = RANK_IN_NAME.search(name)
    if named is None:
        return spec
    return f"{folder}{slash}{_TIMESTAMP.sub('*', name[: named.start(1)])}*{_TIMESTAMP.sub('*', name[named.end(1) :])}"


def _timestamp_sort_key(each: ListedTrace) -> tuple[list[int], str]:
    return [int(digits) for digits in _TIMESTAMP.findall(each.spec.rpartition("/")[2])], each.spec


def _find_exact_pattern(traces: Sequence[ListedTrace], listed: Sequence[ListedTrace]) -> str:
    if any(_GLOB_MAGIC.search(each.spec) for each in traces):
        return ""
    pattern = _wildcard_spec(traces[0].spec)
    depth = pattern.count("/")
    meant = {each.spec for each in listed if fnmatchcase(each.spec, pattern) and each.spec.count("/") == depth}
    return pattern if meant == {each.spec for each in traces} else ""
