"""Load what a command without a screen was given: one trace, or the ranks of a run."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, TextIO

from torchprof_tui.analysis.completeness.data_loss import list_losses
from torchprof_tui.analysis.doctor.read_problems import summarize_problem
from torchprof_tui.analysis.privacy.private_metadata import PrivateValue, describe_private_values
from torchprof_tui.commands.common.errors import UsageError
from torchprof_tui.program.phase_log import note_phase
from torchprof_tui.program.terminal_progress import DELAY_SECONDS, ReplacedLine, show_work
from torchprof_tui.trace.core.errors import DAMAGED_CACHE_MESSAGE, TraceError
from torchprof_tui.trace.core.printable import clean
from torchprof_tui.trace.core.problems import CUT_CONNECTION, UNRELATED_RANKS, excerpt
from torchprof_tui.trace.loading.capture_files import CaptureFiles
from torchprof_tui.trace.loading.load_in_process import load_resolved
from torchprof_tui.trace.loading.open_or_build import OpenedTrace
from torchprof_tui.trace.loading.progress import Phase, Progress, RanksProgress
from torchprof_tui.trace.loading.resolve import resolve_path, resolve_specs
from torchprof_tui.trace.model.ranks import Rank
from torchprof_tui.trace.model.trace import Trace
from torchprof_tui.trace.sources.ssh_connections import SshConnections
from torchprof_tui.trace.storage.disk_cache import explain_refused_folder, prune_cache


def load_specs(specs: Sequence[str], cache: bool, list_folders: bool = False) -> OpenedTrace:
    """Load what the user named, from the cache or decoded now, with a progress line; report lost ranks on stderr.

    A remote folder that holds the ranks of one run and nothing else is that run; with `list_folders` it raises
    FolderError, as every other remote folder does. Raises TraceError.
    """
    guard_mapped_files()
    progress_line = ProgressLine(sys.stderr)
    with SshConnections() as connections:
        try:
            with show_work("listing the files"):
                resolved = resolve_specs(specs)
            opened = load_resolved(resolved, connections, progress_line, cache, list_folders, sys.stderr.isatty())
        finally:
            progress_line.clear()
    note_phase("trace opened", events=len(opened.trace), cached=str(opened.cached), seconds=opened.seconds)
    if opened.was_damaged:
        print(f"torchprof-tui: {DAMAGED_CACHE_MESSAGE}", file=sys.stderr)
    for line in opened.left_out:
        print(f"torchprof-tui: left out: {clean(line)}", file=sys.stderr)
    for lost in () if opened.trace.merged_ranks is None else opened.trace.merged_ranks.lost:
        print(f"torchprof-tui: left out: {clean(str(lost))}", file=sys.stderr)
    for problem in opened.trace.problems:
        if problem.kind == UNRELATED_RANKS and opened.trace.merged_ranks is not None:
            print(f"torchprof-tui: {problem.kind} {clean(problem.example)}", file=sys.stderr)
        if problem.kind == CUT_CONNECTION and opened.trace.merged_ranks is None:
            raise UsageError(f"{clean(opened.trace.label)}: {clean(problem.example)}; try again")
    if not list_folders and (said := _describe_problems(opened.trace)):  # `info` prints all of it
        print(f"torchprof-tui: {clean(opened.trace.label)} is partial: {said}; see `info`", file=sys.stderr)
    if cache and not opened.cached:
        report_refused_cache()
        prune_cache()
    return opened


def report_refused_cache() -> None:
    """Report a cache folder that is not used, because it holds other things, on stderr."""
    line = explain_refused_folder()
    if line is not None:
        print(f"torchprof-tui: {clean(line)}", file=sys.stderr)


def select_rank(trace: Trace, number: int | None) -> tuple[Trace, Rank | None]:
    """Select the trace of one rank where there are several: rank `number`, else the first. Raises UsageError."""
    ranks = trace.merged_ranks
    if ranks is None:
        if number is not None and number != trace.rank:
            known = "one trace without a rank number" if trace.rank is None else f"rank {trace.rank} only"
            raise UsageError(f"--rank {number}: no such rank; the input is {known}")
        return trace, None
    rank = ranks.all[0] if number is None else ranks.find_rank(number)
    if rank is None:
        known = ", ".join(str(other.number) for other in ranks.all)
        raise UsageError(f"--rank {number}: no such rank; there are ranks {known}")
    return rank.trace, rank


_MAX_LISTED_RANKS = 4  # ranks named in the line; the others are counted


def _describe_problems(trace: Trace) -> str:
    """Describe the losses, by rank if there are several; ranks that failed to open are reported elsewhere."""
    if trace.merged_ranks is None:
        return ", ".join(map(summarize_problem, list_losses(trace)))
    said = [f"{rank.label}: {words}" for rank in trace.merged_ranks.all if (words := _describe_problems(rank.trace))]
    more = f"; and {len(said) - _MAX_LISTED_RANKS} more ranks" if len(said) > _MAX_LISTED_RANKS else ""
    return "; ".join(said[:_MAX_LISTED_RANKS]) + more


def use_captures(trace: Trace, names: Sequence[str], cache: bool) -> Trace:
    """Return the trace with the captures of `--capture`, if any were named. Raises TraceError where one cannot be read.

    Without the option captures are looked for beside the trace, once a replayed kernel is asked about. Of several ranks
    each gets those of its own rank.
    """
    if not names:
        return trace
    if trace.merged_ranks is None:
        return _use_captures_of_rank(trace, trace.label, names, cache)
    ranks = tuple(
        replace(rank, trace=_use_captures_of_rank(rank.trace, rank.file, names, cache))
        for rank in trace.merged_ranks.all
    )
    return replace(trace, merged_ranks=replace(trace.merged_ranks, all=ranks))


def _use_captures_of_rank(trace: Trace, spec: str, names: Sequence[str], cache: bool) -> Trace:
    captures = CaptureFiles(spec, [resolve_path(name) for name in names], cache=cache)
    captures.open_traces(trace)
    if captures.problems:
        raise TraceError(f"--capture: {captures.problems[0]}")
    return replace(trace, captures=captures)


MAX_KEPT = 8  # keys that are named, at most


def report_private_values(left_out: Sequence[PrivateValue], kept: Sequence[str]) -> None:
    """Report on stderr what was left out, and which other metadata was kept, without any value."""
    if left_out:
        text = clean(describe_private_values(left_out))
        print(f"torchprof-tui: left out: {text}; --keep-metadata keeps it", file=sys.stderr)
    if kept:
        more = f" and {len(kept) - MAX_KEPT} more" if len(kept) > MAX_KEPT else ""
        keys = ", ".join(map(excerpt, kept[:MAX_KEPT]))
        line = f"torchprof-tui: kept: {keys}{more}; nothing private was found there, which is no guarantee"
        print(clean(line), file=sys.stderr)


REDRAW_SECONDS = 0.1


class ProgressLine:
    """Print each Progress that it is called with; print nothing if the stream is no terminal."""

    def __init__(self, out: TextIO) -> None:
        self._is_terminal = out.isatty()
        self._line = ReplacedLine(out)
        self.clear = self._line.clear
        self._next_redraw = time.monotonic() + DELAY_SECONDS
        self._phase: Phase | None = None

    def __call__(self, progress: Progress) -> None:
        now = time.monotonic()
        if progress.phase != self._phase:
            self._phase = progress.phase
            note_phase(f"load: {progress.phase}", bytes=progress.bytes, events=progress.events)
        if not self._is_terminal or now < self._next_redraw or progress.phase == Phase.CONNECTING:
            return
        self._next_redraw = now + REDRAW_SECONDS
        share = f"{progress.bytes / progress.total:4.0%}" if progress.total else f"{progress.bytes / 1e6:,.0f} MB"
        ranks = (
            f", {progress.finished_count} of {len(progress.shares)} ranks"
            if isinstance(progress, RanksProgress)
            else ""
        )
        text = f"{progress.phase} {share}, {progress.events:,} events{ranks}"
        self._line.show(text, progress.bytes / progress.total if progress.total else None)


CUT_FILE_LINE = "torchprof-tui: a cached file was cut short while it was read; run the command again"

_kept_handlers: list[Any] = []  # C calls them for as long as the process lives


def guard_mapped_files() -> None:
    """Print one line and exit with the status of a SIGBUS, 128 + its number, should one arrive in this process.

    It does where a mapped file is cut short by another program, at a read of the missing part. Python's own handlers
    run after the instruction that failed, which never ends: it would fail again and again. A C function may be called
    at once, and ctypes makes one of a Python function. It does nothing but write and exit.
    """
    if _kept_handlers or not hasattr(signal, "SIGBUS"):
        return
    process = os.getpid()
    line = f"\n{CUT_FILE_LINE}\n".encode()

    def exit_with_line(number: int) -> None:
        if os.getpid() == process:  # a worker process ends without a word: this one explains it
            with contextlib.suppress(OSError):
                os.write(2, line)
        os._exit(128 + number)

    handler = ctypes.CFUNCTYPE(None, ctypes.c_int)(exit_with_line)
    with contextlib.suppress(OSError, AttributeError):  # without it, the shell says "Bus error"
        install = ctypes.CDLL(None).signal
        install.restype = ctypes.c_void_p
        install(int(signal.SIGBUS), handler)
        _kept_handlers.append(handler)
