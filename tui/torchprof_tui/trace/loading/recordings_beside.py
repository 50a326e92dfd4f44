"""Find other recordings of a trace's program, of which one may be eager, and open them on first use.

Two places are looked at. `run` writes beside each trace which command it recorded; other runs of it lie in the folders
beside, and their commands differ in words about compilation and about what is measured alone. Else files in the trace's
folder count whose names differ in such words alone, as in the samples: `article_4096_compile`, `article_4096_cold`.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Annotated

import msgspec
from msgspec import Meta

from torchprof_samples import SAMPLES
from torchprof_tui.trace.core.errors import TraceError, UnreadableFileError
from torchprof_tui.trace.core.late_regex import compile_later
from torchprof_tui.trace.core.typed_json import Count, Path, Words, read_typed_file
from torchprof_tui.trace.loading.load_in_process import load_trace
from torchprof_tui.trace.specs.address import SAMPLE_PREFIX, TRACE_SUFFIXES, is_key_averages_file, is_remote

if TYPE_CHECKING:
    from torchprof_tui.trace.model.trace import Trace

MANIFEST_FILE = "manifest.json"
MAX_MANIFEST_BYTES = 8 << 20
MAX_LISTED = 1_000  # entries of a folder that are looked at, the last changed first

MAX_OPENED = 3
MAX_BYTES = 16 << 20
"""Recordings that are opened though the user did not name them, and the size of each: a second or two to decode."""

_MODES = frozenset(
    {"eager", "compile", "graph", "default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs"}
)
_MODE_OPTIONS = frozenset({"--mode", "--compile-mode"})
_FLAGS = frozenset({"--compile", "--no-compile", "--eager"})
_MEASURED_OPTIONS = frozenset({"--warmup", "--wait", "--active", "--steps", "--output", "-o"})
"""Words of a command that are not the program: how it is compiled, and how many steps of it are recorded."""

_NAME_WORDS = frozenset(
    {"eager", "cold", "warm", "compile", "compiled", "inductor", "reduce", "overhead", "max", "autotune", "default"}
)
_WORD_BREAK = compile_later(r"[_\-.\s]+")


class _KeptTrace(msgspec.Struct, frozen=True):
    trace: Path


class _RecordedRun(msgspec.Struct, frozen=True):
    """What is read of the manifest of a run."""

    command: Words
    cwd: Path = ""
    rank: Count | None = None
    kept: Annotated[tuple[_KeptTrace, ...], Meta(max_length=100_000)] = ()


class RecordingsBeside:
    """Other recordings of the program of the trace at `spec`, opened on first use and kept; a `SameProgram`.

    Thread-safe. No error of another recording stops anything.
    """

    def __init__(self, spec: str, cache: bool = True) -> None:
        self._spec, self._cache = spec, cache
        self._lock = threading.Lock()
        self._opened: tuple[Trace, ...] | None = None

    @property
    def spec(self) -> str:
        return name_spec(self._spec)

    def open_traces(self) -> Sequence[Trace]:
        with self._lock:
            if self._opened is None:
                self._opened = tuple(self._open_all())
            return self._opened

    def _open_all(self) -> Iterator[Trace]:
        if self._spec == "-" or is_remote(self._spec):
            return
        path = os.path.abspath(self._spec)
        beside = _list_runs_beside(path) or _list_files_beside(path)
        usable = [other for other in beside if os.path.isfile(other) and 0 < os.path.getsize(other) <= MAX_BYTES]
        for other in usable[:MAX_OPENED]:
            with contextlib.suppress(TraceError, OSError):
                yield replace(load_trace(other, cache=self._cache), label=name_spec(other))


def name_spec(path: str) -> str:
    """Name a file as a user does: a sample by its name, a file below the current folder by its relative path."""
    absolute = os.path.abspath(path)
    for sample in SAMPLES:
        if str(sample.path) == absolute:
            return f"{SAMPLE_PREFIX}{sample.name}"
    relative = os.path.relpath(absolute)
    return absolute if relative.startswith("..") else relative


def reduce_command(command: Sequence[str]) -> tuple[str, ...]:
    """Return the words of a command without those about compilation, and about which of its steps are recorded."""
    kept: list[str] = []
    words = iter(command)
    for word in words:
        option, is_joined, value = word.partition("=")
        if word in _FLAGS:
            continue
        if option not in _MODE_OPTIONS | _MEASURED_OPTIONS:
            kept.append(word)
            continue
        value = value if is_joined else next(words, "")
        if option in _MODE_OPTIONS and value not in _MODES:
            kept += [option, value]
    return tuple(kept)


def is_compiled_command(command: Sequence[str]) -> bool:
    """Return whether a program was told to compile: `--compile`, or a mode of torch.compile."""
    words = " ".join(command).replace("=", " ").split()
    modes = {value for option, value in pairwise(words) if option in _MODE_OPTIONS}
    return "--compile" in words or not modes.isdisjoint(_MODES - {"eager", "graph"})


def reduce_name(path: str) -> tuple[str, ...]:
    """Return the words of a file's name without its suffixes and without those about compilation and warm-up."""
    stem = os.path.basename(path)
    while suffix := next((each for each in TRACE_SUFFIXES if stem.endswith(each)), ""):
        stem = stem.removesuffix(suffix)
    return tuple(word for word in _WORD_BREAK.split(stem) if word not in _NAME_WORDS)


def _list_runs_beside(path: str) -> list[str]:
    """List the traces of other runs of the same command, newest first; none where `run` did not record the trace."""
    folder = os.path.dirname(path)
    run = _read_run(folder)
    if run is None:
        return []
    wanted = reduce_command(run.command), run.cwd, run.rank
    found = []
    for other in _list_entries(os.path.dirname(folder)):
        read = _read_run(other) if other != folder else None
        if read is not None and (reduce_command(read.command), read.cwd, read.rank) == wanted:
            found += [os.path.join(other, os.path.basename(kept.trace)) for kept in read.kept[:1]]
    return found


def _list_files_beside(path: str) -> list[str]:
    """List the traces of the same folder whose names differ in words about compilation and warm-up alone."""
    wanted = reduce_name(path)
    names = [
        other
        for other in _list_entries(os.path.dirname(path))
        if other != path and other.endswith(TRACE_SUFFIXES) and not is_key_averages_file(os.path.basename(other))
    ]
    return sorted(other for other in names if wanted and reduce_name(other) == wanted)


def _list_entries(folder: str) -> list[str]:
    try:
        with os.scandir(folder) as entries:
            found = [(entry.stat().st_mtime, entry.path) for entry in entries]
    except OSError:
        return []
    return [path for _, path in sorted(found, reverse=True)[:MAX_LISTED]]


def _read_run(folder: str) -> _RecordedRun | None:
    path = os.path.join(folder, MANIFEST_FILE)
    if not os.path.isfile(path):
        return None
    try:
        return read_typed_file(path, _RecordedRun, MAX_MANIFEST_BYTES)
    except (UnreadableFileError, OSError):
        return None
