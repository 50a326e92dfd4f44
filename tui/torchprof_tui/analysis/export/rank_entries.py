"""Rewrite the entries of one rank's file for a file of several ranks: processes, clocks and numbers kept apart."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import orjson

from torchprof_tui.analysis.slicing.entry_survey import get_text_index, read_chunks
from torchprof_tui.trace.build.event_kinds import PROFILER_PIDS
from torchprof_tui.trace.core.problems import ProblemTally
from torchprof_tui.trace.decode.interning import text_of
from torchprof_tui.trace.decode.timestamps import parse_times
from torchprof_tui.trace.json_text.salvage import parse_chunk
from torchprof_tui.trace.model.ranks import Rank
from torchprof_tui.trace.model.raw_events import ARGS, NO_TIME

_MAX_PROCESS = 2**31 - 1
"""Largest number of a process that readers of the format take."""


@dataclass(frozen=True, slots=True)
class ProcessNumbers:
    """How processes are numbered: rank N has the numbers from N · `per_rank` on.

    Processes keep their own number below `first_new`; all others are counted from there.
    """

    per_rank: int
    first_new: int

    def number_process(self, rank: int, own: str, known: int) -> int:
        """Return the number of a process that is called `own` in its file, where `known` others have one."""
        is_kept = own.isascii() and own.isdecimal() and len(own) < 9 and int(own) < self.first_new
        return rank * self.per_rank + (int(own) if is_kept else self.first_new + known)


_KEPT = ProcessNumbers(10_000_000, 9_000_000)  # Linux has at most 4,194,304 processes
_COUNTED = ProcessNumbers(10_000, 0)


def choose_process_numbers(largest_rank: int) -> ProcessNumbers:
    """Choose how to number processes: recognizable where there is room for all ranks, else counted."""
    return _KEPT if (largest_rank + 1) * _KEPT.per_rank <= _MAX_PROCESS else _COUNTED


_RANK_SHIFT_BITS = 40
"""As when ranks are merged in memory: above these bits of a number is the index of the rank. 8,192 ranks stay below
2^53, up to which JavaScript has integers."""

_LOCAL_ARGS = (
    "correlation",
    *(key for name in ("external_id", "sequence", "python_id", "python_parent") for key in ARGS[name]),
)
"""Args with numbers that each process counts from 0."""

_FLOW_KEYS = ("id", "bind_id")


class RankEntries:
    """The entries of a rank. `index`: its place among the ranks. `shift`: ns to add to times of its file."""

    def __init__(self, rank: Rank, index: int, shift: int, numbers: ProcessNumbers) -> None:
        self._rank = rank
        self._shift = shift
        self._numbers = numbers
        self._number_shift = index << _RANK_SHIFT_BITS
        self._pids: dict[str, int] = {}
        self._named_pids: set[int] = set()

    def read(self) -> Iterator[dict[str, Any]]:
        """Yield all entries, rewritten, then the names of processes that have none. Raises OSError, LookupError."""
        for _, _, text in read_chunks(get_text_index(self._rank.trace)):
            entries = parse_chunk(text)
            times = None
            if self._shift:
                times = parse_times([entry.get("ts") for entry in entries], text, ProblemTally()).tolist()
            for place, entry in enumerate(entries):
                if times is not None and times[place] != NO_TIME:
                    entry["ts"] = _format_microseconds(times[place] + self._shift)
                self._rewrite(entry)
                yield entry
        for own_pid, pid in self._pids.items():
            if pid not in self._named_pids:
                yield {"ph": "M", "name": "process_name", "pid": pid, "args": {"name": self._name_process(own_pid)}}

    def _rewrite(self, entry: dict[str, Any]) -> None:
        pid = text_of(entry.get("pid"))
        if pid in PROFILER_PIDS:  # tracks of the profiler itself, by whose names readers know them
            entry["tid"] = f"{self._rank.label} {text_of(entry.get('tid'))}".rstrip()
        else:
            entry["pid"] = self._renumber_process(pid)
        for key in _FLOW_KEYS:
            if key in entry:
                entry[key] = self._renumber(entry[key])
        args = entry.get("args")
        if not isinstance(args, dict):
            return
        for key in _LOCAL_ARGS:
            if key in args:
                args[key] = self._renumber(args[key])
        if entry.get("ph") == "M":
            self._rewrite_metadata(entry, args)

    def _rewrite_metadata(self, entry: dict[str, Any], args: dict[str, Any]) -> None:
        name, pid = entry.get("name"), entry.get("pid")
        if name == "process_name" and isinstance(args.get("name"), str) and isinstance(pid, int):
            args["name"] = self._name_process(args["name"])
            self._named_pids.add(pid)
        elif name == "process_sort_index" and type(args.get("sort_index")) is int and isinstance(pid, int):
            own = min(max(args["sort_index"], 0), self._numbers.per_rank - 1)
            args["sort_index"] = self._rank.number * self._numbers.per_rank + own

    def _name_process(self, name: str) -> str:
        return f"{self._rank.label} {name}"

    def _renumber_process(self, text: str) -> int:
        """Return the process number in the written file."""
        pid = self._pids.get(text)
        if pid is None:
            pid = self._pids[text] = self._numbers.number_process(self._rank.number, text, len(self._pids))
        return pid

    def _renumber(self, value: Any) -> Any:
        """Return a number or id that no other rank has; negative numbers mean none and stay."""
        if type(value) is int:
            return value + self._number_shift if value >= 0 else value
        if isinstance(value, str) and self._number_shift:
            return f"{value}@{self._rank.number}"
        return value


def _format_microseconds(ns: int) -> orjson.Fragment:
    """Format ns as µs with three decimals: a float cannot hold the digits of times since the epoch."""
    sign = "-" if ns < 0 else ""
    return orjson.Fragment(f"{sign}{abs(ns) // 1000}.{abs(ns) % 1000:03}")
