"""Write a trace, or all ranks of a run, as one Chrome trace file without environment variables and secrets."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np

from torchprof_tui.analysis.completeness.private_metadata import PrivateValue
from torchprof_tui.analysis.export.rank_entries import RankEntries, choose_process_numbers
from torchprof_tui.analysis.slicing.document_writer import open_trace_file, write_document, write_header
from torchprof_tui.analysis.slicing.entry_survey import map_entries_to_events
from torchprof_tui.trace.core.bounded_json import dump_bounded
from torchprof_tui.trace.core.process_state import pause_garbage_collection
from torchprof_tui.trace.model.ranks import Rank, Ranks
from torchprof_tui.trace.model.trace import Trace

RANKS_KEY = "torchprof_tui_ranks"
"""Top-level key of a file of several ranks: which ranks it holds."""

_OF_ONE_RANK = ("distributedInfo", "traceName", "trace_id")
"""Top-level keys that would say that the file is of one rank."""


@dataclass(frozen=True, slots=True)
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
        header["deviceProperties"] = _merge_devices(ranks.all)
    header[RANKS_KEY] = [{"rank": rank.number, "shift_ns": first.origin - rank.trace.origin} for rank in ranks.all]
    file.write(b"{\n")
    left_out = write_header(first, header, file, keep_private)
    file.write(b'  "traceEvents": [\n')
    separator, count = b"  ", 0
    with pause_garbage_collection():
        for entry in _read_entries(ranks):
            file.write(separator + dump_bounded(entry))
            separator = b",\n  "
            count += 1
    file.write(b"\n  ]\n}\n")
    skipped = (*left_out.skipped_keys, *_list_keys_of_others(ranks.all))
    return ChromeFile(count, skipped, left_out.private_values, left_out.kept_keys)


def _read_entries(ranks: Ranks) -> Iterator[dict[str, Any]]:
    origin = ranks.all[0].trace.origin
    numbers = choose_process_numbers(max(rank.number for rank in ranks.all))
    for index, rank in enumerate(ranks.all):
        yield from RankEntries(rank, index, origin - rank.trace.origin, numbers).read()


def _merge_devices(ranks: Sequence[Rank]) -> list[Any]:
    """Merge `deviceProperties` of all ranks: each device once, the first of several with one number."""
    devices: dict[bytes, Any] = {}
    for rank in ranks:
        listed = rank.trace.header.get("deviceProperties")
        for device in listed if isinstance(listed, list) else ():
            number = device.get("id") if isinstance(device, dict) else device
            devices.setdefault(dump_bounded(number), device)
    return list(devices.values())


def _list_keys_of_others(ranks: Sequence[Rank]) -> list[str]:
    """List the top-level keys that only ranks after the first have."""
    first = ranks[0].trace
    known = {*first.header, *(first.large_keys.spans if first.large_keys else ()), *_OF_ONE_RANK}
    others = dict.fromkeys(
        key
        for rank in ranks[1:]
        for key in (*rank.trace.header, *(rank.trace.large_keys.spans if rank.trace.large_keys else ()))
    )
    return [key for key in others if key not in known]
