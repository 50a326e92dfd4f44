"""The answers of commands that write files, and about the files of the cache."""

from __future__ import annotations

from typing import Annotated

from torchprof_tui.analysis.slicing.slice_writer import SliceResult
from torchprof_tui.answers.losses import Problem, build_losses
from torchprof_tui.answers.record import Answer, about, fill
from torchprof_tui.trace.model.trace import Trace
from torchprof_tui.trace.storage import disk_cache


class Slice(Answer, frozen=True, kw_only=True, tag="torchprof-tui/slice/1"):
    """The trace that `slice` wrote."""

    trace: Annotated[str, about("path of the new trace, as given with -o")]
    entries: Annotated[int, about("entries of traceEvents in it")]
    entries_of: Annotated[int, about("entries of the whole trace")]
    events: Annotated[int, about("its events on lanes")]
    bytes: Annotated[int, about("its size")]
    starts_ns: Annotated[int, about("start of its first event in the whole trace")]
    left_out: Annotated[list[str], about("keys that are not in it: too large, unreadable, or private")]
    partial: Annotated[list[Problem], about("what was lost of the whole trace; [] for nothing")]


class Export(Answer, frozen=True, kw_only=True, tag="torchprof-tui/export/1"):
    """The file that `export` wrote."""

    trace: Annotated[str, about("path of the file, as given with -o")]
    format: Annotated[str, about("its format: the name of the option that chooses it, such as parquet")]
    count: Annotated[int, about("what it holds, in `unit`")]
    unit: Annotated[str, about("what is counted: events, entries, stacks, or groups of like launches")]
    bytes: Annotated[int, about("its size")]
    left_out: Annotated[list[str], about("what of the trace is not in it, such as environment variables")]
    partial: Annotated[list[Problem], about("what was lost of the whole trace; [] for nothing")]


class CacheUse(Answer, frozen=True, kw_only=True, tag="torchprof-tui/cache/1"):
    """The disk cache of decoded traces: where it is and how full; with `--clear` what was removed."""

    folder: Annotated[str | None, about("folder of the cache; null without a home folder")]
    traces: Annotated[int, about("cached traces")]
    bytes: Annotated[int, about("their size on the disk")]
    limit_bytes: Annotated[int, about("size from which the least recently used are removed")]
    removed: Annotated[int | None, about("traces that `--clear` removed; only with `--clear`")] = None
    freed_bytes: Annotated[int | None, about("what they took; only with `--clear`")] = None
    cannot_tell: Annotated[str | None, about("why there is no cache; left out where there is one")] = None


NO_CACHE = "no home folder, so no cache; TORCHPROF_TUI_CACHE can name a folder for it"


def build_slice(trace: Trace, output: str, sliced: SliceResult) -> Slice:
    """Build the answer about a slice of `trace` that was written to `output`."""
    return fill(
        Slice,
        sliced,
        trace=output,
        entries_of=sliced.total_entries,
        bytes=sliced.size,
        starts_ns=sliced.first_start,
        partial=build_losses(trace),
    )


def build_cache_use(removed: int | None = None, freed_bytes: int | None = None) -> CacheUse:
    """Build the answer about the cache as it is now; `removed`, `freed_bytes`: what was just cleared, else None."""
    folder = disk_cache.cache_folder()
    traces, size = disk_cache.cache_usage()
    has_folder = folder != disk_cache.NO_FOLDER
    refusal = disk_cache.explain_refused_folder() if has_folder else NO_CACHE
    return CacheUse(
        folder=str(folder) if has_folder else None,
        traces=traces,
        bytes=size,
        limit_bytes=disk_cache.cache_limit(),
        removed=removed,
        freed_bytes=freed_bytes,
        cannot_tell=refusal,
    )
