"""List the traces of a local folder, or of the folders in it that tools make, with the rank of each where it is known.

| tool | below the folder that is named |
|---|---|
| torchtitan | `iteration_10/rank0_trace.json`, `rank_0/trace.json` |
| JAX, TensorFlow | `plugins/profile/2026_01_02_03_04_05/host.trace.json.gz` |
| torch_npu | `box_77_2026_ascend_pt/ASCEND_PROFILER_OUTPUT/trace_view.json`; rank: `profiler_info_3.json` |
"""

from __future__ import annotations

import os

from torchprof_tui.trace.core.late_regex import compile_later
from torchprof_tui.trace.specs.address import ListedTrace, is_key_averages_file, list_local_suffixes
from torchprof_tui.trace.specs.rank_files import read_trace_head

MAX_DEPTH = 4
"""Folders below the one that is named: JAX has three, torchtitan with replicas three."""

MAX_ENTRIES = 20_000
"""Directory entries that are looked at, so that a home folder does not take for ever."""

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
    for _ in range(MAX_DEPTH + 1):
        found: list[ListedTrace] = []
        below: list[str] = []
        for path in level:
            traces, folders = _scan(path, budget)
            found += traces
            # What lies below a folder with traces, such as captures, belongs to these.
            below += [] if traces else folders
        if found:
            return sorted(found + _list_below(below, budget), key=lambda trace: trace.spec)
        level = below
    return []


def _list_below(folders: list[str], budget: list[int]) -> list[ListedTrace]:
    """List traces that lie deeper than others: `iteration_10` may have one more folder than `iteration_20`."""
    found: list[ListedTrace] = []
    for _ in range(MAX_DEPTH):
        scanned = [_scan(path, budget) for path in folders]
        found += [trace for traces, _ in scanned for trace in traces]
        folders = [folder for traces, below in scanned if not traces for folder in below]
    return found


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
