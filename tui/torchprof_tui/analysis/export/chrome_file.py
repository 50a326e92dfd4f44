"""Write a trace, or all ranks of a run, as one Chrome trace file without environment variables and secrets."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np
import orjson

from torchprof_tui.analysis.privacy.private_metadata import PrivateValue
from torchprof_tui.analysis.slicing.document_writer import (
    get_text_index,
    map_entries_to_events,
    open_trace_file,
    read_chunks,
    read_times,
    write_document,
    write_header,
)
from torchprof_tui.trace.build.event_kinds import PROFILER_PIDS
from torchprof_tui.trace.core.bounded_json import dump_bounded
from torchprof_tui.trace.core.process_state import pause_garbage_collection
from torchprof_tui.trace.core.records import record
from torchprof_tui.trace.decode.interning import text_of
from torchprof_tui.trace.json_text.salvage import parse_chunk
from torchprof_tui.trace.model.ranks import Rank, Ranks
from torchprof_tui.trace.model.raw_events import ARGS, NO_TIME
from torchprof_tui.trace.model.trace import Trace

_MAX_PROCESS = 2**31 - 1  # largest number of a process that readers of the format take


@record
class ProcessNumbers:
    """How processes are numbered: rank N has the numbers from N · `per_rank` on.

    Processes keep their own number below `first_new`; all others are counted from there.
    """

    per_rank: int
    first_new: int


_KEPT = ProcessNumbers(10_000_000, 9_000_000)  # Linux has at most 4,194,304 processes
_COUNTED = ProcessNumbers(10_000, 0)


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
                times = read_times(entries, text).tolist()
            for place, entry in enumerate(entries):
                if times is not None and times[place] != NO_TIME:
                    ns = times[place] + self._shift
                    sign = "-" if ns < 0 else ""
                    entry["ts"] = orjson.Fragment(f"{sign}{abs(ns) // 1000}.{abs(ns) % 1000:03}")
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
            if pid not in self._pids:
                first_new = self._numbers.first_new
                is_kept = pid.isascii() and pid.isdecimal() and len(pid) < 9 and int(pid) < first_new
                own = int(pid) if is_kept else first_new + len(self._pids)
                self._pids[pid] = self._rank.number * self._numbers.per_rank + own
            entry["pid"] = self._pids[pid]
        args = entry.get("args")
        for values, keys in ((entry, _FLOW_KEYS), (args, _LOCAL_ARGS)):
            if isinstance(values, dict):
                values |= {key: self._renumber(values[key]) for key in keys if key in values}
        if not isinstance(args, dict):
            return
        number = entry.get("pid")
        if entry.get("ph") != "M" or not isinstance(number, int):
            return
        name = entry.get("name")
        if name == "process_name" and isinstance(args.get("name"), str):
            args["name"] = self._name_process(args["name"])
            self._named_pids.add(number)
        elif name == "process_sort_index" and type(args.get("sort_index")) is int:
            own = min(max(args["sort_index"], 0), self._numbers.per_rank - 1)
            args["sort_index"] = self._rank.number * self._numbers.per_rank + own

    def _name_process(self, name: str) -> str:
        return f"{self._rank.label} {name}"

    def _renumber(self, value: Any) -> Any:
        """Return a number or id that no other rank has; negative numbers mean none and stay."""
        if type(value) is int:
            return value + self._number_shift if value >= 0 else value
        if isinstance(value, str) and self._number_shift:
            return f"{value}@{self._rank.number}"
        return value


RANKS_KEY = "torchprof_tui_ranks"  # top-level key of a file of several ranks: which ranks it holds

_OF_ONE_RANK = ("distributedInfo", "traceName", "trace_id")
"""Top-level keys that would say that the file is of one rank."""


@record
class ChromeFile:
    """What was written: `entries` of `traceEvents`; the other fields as in `SliceResult`."""

    entries: int
    skipped_keys: tuple[str, ...]
    private_values: tuple[PrivateValue, ...]
    kept_keys: tuple[str, ...]


def write_chrome_file(trace: Trace, out: Path, keep_private: bool = False) -> ChromeFile:
    """Write a Chrome trace file, gzipped for `.gz`.

    Of one trace all entries are written with their own text. Of several ranks, each rank's process ids, ids of flows
    and correlations are renumbered (`RankEntries`), its times are put on the clock of the first rank, and its processes
    are named after it; the header is that of the first rank. Raises OutputError, and OSError or LookupError if the
    text of the trace cannot be read any more.
    """
    with open_trace_file(out) as file:
        if trace.merged_ranks is not None:
            return _write_ranks(trace.merged_ranks, file, keep_private)
        kept = np.ones(len(map_entries_to_events(trace)), np.bool_)
        left_out = write_document(trace, kept, {}, file, keep_private)
        return ChromeFile(len(kept), left_out.skipped_keys, left_out.private_values, left_out.kept_keys)


def _write_ranks(ranks: Ranks, file: IO[bytes], keep_private: bool) -> ChromeFile:
    first = ranks.all[0].trace
    header = {key: value for key, value in first.header.items() if key not in _OF_ONE_RANK}
    if "deviceProperties" in header:
        devices: dict[bytes, Any] = {}
        for rank in ranks.all:
            listed = rank.trace.header.get("deviceProperties")
            for device in listed if isinstance(listed, list) else ():
                number = device.get("id") if isinstance(device, dict) else device
                devices.setdefault(dump_bounded(number), device)
        header["deviceProperties"] = list(devices.values())
    header[RANKS_KEY] = [{"rank": rank.number, "shift_ns": first.origin - rank.trace.origin} for rank in ranks.all]
    file.write(b"{\n")
    left_out = write_header(first, header, file, keep_private)
    file.write(b'  "traceEvents": [\n')
    separator, count = b"  ", 0
    has_room = (max(rank.number for rank in ranks.all) + 1) * _KEPT.per_rank <= _MAX_PROCESS
    numbers = _KEPT if has_room else _COUNTED
    with pause_garbage_collection():
        for index, rank in enumerate(ranks.all):
            for entry in RankEntries(rank, index, first.origin - rank.trace.origin, numbers).read():
                file.write(separator + dump_bounded(entry))
                separator = b",\n  "
                count += 1
    file.write(b"\n  ]\n}\n")
    # The top-level keys that only ranks after the first have are left out as well.
    large = [() if rank.trace.large_keys is None else rank.trace.large_keys.spans for rank in ranks.all]
    known = {*first.header, *large[0], *_OF_ONE_RANK}
    others = dict.fromkeys(
        key for rank, keys in zip(ranks.all, large, strict=True) for key in (*rank.trace.header, *keys)
    )
    skipped = (*left_out.skipped_keys, *(key for key in others if key not in known))
    return ChromeFile(count, skipped, left_out.private_values, left_out.kept_keys)
