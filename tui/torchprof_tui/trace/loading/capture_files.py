"""Find and open the traces in which the graphs of a trace were captured.

vLLM and SGLang write them to `capture_traces/` beside the trace, with `execution_details.json`, which lists the batch
size of each. Nothing is searched or opened before a replayed kernel is asked about, and no error of a capture stops
anything: it is listed in `problems`.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from torchprof_tui.trace.core.errors import TraceError, UnreadableFileError
from torchprof_tui.trace.core.late_regex import compile_later
from torchprof_tui.trace.core.printable import clean
from torchprof_tui.trace.core.typed_json import Count, Text, read_typed_file
from torchprof_tui.trace.loading.load_in_process import load_trace
from torchprof_tui.trace.specs.address import TRACE_SUFFIXES, is_key_averages_file, is_remote, rank_in_name
from torchprof_tui.trace.specs.rank_files import rank_of

if TYPE_CHECKING:
    from torchprof_tui.trace.model.trace import Trace

CAPTURE_FOLDER = "capture_traces"
DETAILS_FILE = "execution_details.json"

MAX_DETAILS_BYTES = 1 << 20

MAX_LISTED = 1000  # entries of a capture folder that are looked at
MAX_OPENED = 8  # captures that are opened of one folder: those with the batch sizes nearest to the trace's

MAX_SMALL, MAX_SMALL_BYTES = 64, 4 << 20
"""Captures that are all opened where they are as small together as those of `run --capture`."""

MAX_BYTES = 512 << 20  # size of a file that is opened without being named by the user

_BATCH_OF_STEP = compile_later(r"generation_(\d+)|\bbs=(\d+)")
_BATCH_IN_NAME = compile_later(r"(?:^|_)bs_?(\d+)(?:_|\.|$)")


class CaptureDetails(msgspec.Struct, frozen=True):
    """One capture: its file, batch size and mode (`FULL`, `PIECEWISE`)."""

    file: Text
    batch_size: Count
    mode: Text = ""


class CaptureFiles:
    """The captures of one trace, opened on first use and kept; a `CaptureTraces`.

    `spec`: the trace, beside which captures are looked for. `named`: files and folders that the user named; nothing
    is looked for then; those of other ranks are left out where one is of the trace's rank. Thread-safe.
    """

    def __init__(self, spec: str, named: Sequence[str] = (), cache: bool = True) -> None:
        self._spec = spec
        self._named = tuple(named)
        self._cache = cache
        self._lock = threading.Lock()
        self._opened: tuple[Trace, ...] | None = None
        self._problems: list[str] = []

    @property
    def problems(self) -> Sequence[str]:
        """What could not be opened and why, one line each, after `open_traces`."""
        return tuple(self._problems)

    def open_traces(self, replayed: Trace) -> Sequence[Trace]:
        """Open the captures on the first call, which blocks, and return those that could be opened.

        Of many, those whose batch sizes are nearest to those of the steps in `replayed`; none of another rank.
        """
        with self._lock:
            if self._opened is None:
                rank = rank_of(replayed.rank, self._spec)
                if self._named:
                    opened = self._open_all(self._list_named(rank))
                    own = [trace for trace in opened if trace.rank in (None, rank)]
                    opened = own if rank is not None and own else opened
                else:
                    opened = self._open_all(self._find_beside(replayed, rank))
                self._opened = tuple(opened)
            return self._opened

    def _list_named(self, rank: int | None) -> list[str]:
        paths: list[str] = []
        for name in self._named:
            found = list(filter(os.path.isfile, _list_traces(name))) if os.path.isdir(name) else [name]
            paths += found
            if not found:
                self._problems.append(f"{clean(name)}: no traces in this folder")
        return [path for path in paths if _is_of_rank(path, rank)] or paths

    def _find_beside(self, replayed: Trace, rank: int | None) -> list[str]:
        if self._spec == "-" or is_remote(self._spec):
            return []
        folder = os.path.join(os.path.dirname(os.path.abspath(self._spec)), CAPTURE_FOLDER)
        paths = [path for path in _list_traces(folder) if _is_of_rank(path, rank) and self._has_usable_size(path)]
        is_small = len(paths) <= MAX_SMALL and sum(map(os.path.getsize, paths)) <= MAX_SMALL_BYTES
        if is_small or len(paths) <= MAX_OPENED:
            return paths
        sizes = self._read_batch_sizes(folder)
        batches = find_step_batches(replayed.names)

        def distance(path: str) -> tuple[bool, int]:
            """How far the batch size of a capture is above the nearest of `batches`; others come last."""
            name = os.path.basename(path)
            in_name = _BATCH_IN_NAME.search(name)
            size = sizes.get(name, int(in_name[1]) if in_name else -1)
            above = [size - batch for batch in batches if size >= batch]
            return not above, min(above) if above else -size

        chosen = sorted(paths, key=distance)
        self._problems.append(
            f"{len(paths) - MAX_OPENED} of {len(paths)} captures in {CAPTURE_FOLDER}/ were not opened; name one "
            "with --capture"
        )
        return chosen[:MAX_OPENED]

    def _has_usable_size(self, path: str) -> bool:
        size = os.path.getsize(path) if os.path.isfile(path) else 0
        if size > MAX_BYTES:
            self._problems.append(f"{clean(os.path.basename(path))}: larger than 512 MiB; name it with --capture")
        return 0 < size <= MAX_BYTES

    def _read_batch_sizes(self, folder: str) -> dict[str, int]:
        """Read the batch size of each file; {} where the list is missing or damaged."""
        path = os.path.join(folder, DETAILS_FILE)
        if not os.path.isfile(path):
            return {}
        try:
            details = read_typed_file(path, tuple[CaptureDetails, ...], MAX_DETAILS_BYTES)
            return {each.file: each.batch_size for each in details}
        except (UnreadableFileError, OSError) as error:
            self._problems.append(f"{CAPTURE_FOLDER}/: {error}")
            return {}

    def _open_all(self, paths: Sequence[str]) -> list[Trace]:
        opened = []
        for path in paths:
            try:
                opened.append(load_trace(path, cache=self._cache))
            except (TraceError, OSError, LookupError, MemoryError) as error:
                self._problems.append(f"{clean(os.path.basename(path))}: {clean(str(error))}")
        return opened


def find_step_batches(names: Sequence[str]) -> tuple[int, ...]:
    """Find the batch sizes in names of steps: `execute_32_context_0(…)_generation_32(…)`, `step[DECODE bs=32]`."""
    found = (_BATCH_OF_STEP.search(name) for name in names)
    return tuple(sorted({int(match[1] or match[2]) for match in found if match}))


def _list_traces(folder: str) -> list[str]:
    """List the traces in a folder, by name; [] where it cannot be read."""
    try:
        with os.scandir(folder) as entries:
            names = [entry.name for _, entry in zip(range(MAX_LISTED), entries, strict=False)]
    except OSError:
        return []
    return [
        os.path.join(folder, name)
        for name in sorted(names)
        if name.endswith(TRACE_SUFFIXES) and name != DETAILS_FILE and not is_key_averages_file(name)
    ]


def _is_of_rank(path: str, rank: int | None) -> bool:
    named = rank_in_name(os.path.basename(path))
    return named is None or rank is None or named == rank
