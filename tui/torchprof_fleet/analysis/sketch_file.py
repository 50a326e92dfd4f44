"""Make the sketch of one file: in this process, in a process of a pool, or on a worker of a cluster."""

from __future__ import annotations

from torchprof_fleet.analysis.sketch_parquet import encode_sketches
from torchprof_fleet.analysis.sketch_task import SketchResult
from torchprof_fleet.analysis.sketch_trace import sketch_trace
from torchprof_tui.trace.core.errors import format_error, is_expected
from torchprof_tui.trace.loading.decode_and_store import decode_and_store
from torchprof_tui.trace.loading.open_or_build import BuildResult, OpeningState, open_or_build
from torchprof_tui.trace.loading.progress import LoadError, ignore_progress
from torchprof_tui.trace.storage.disk_cache import CacheEntry


def sketch_file(spec: str, identity: str | None = None) -> SketchResult:
    """Open a trace and make its sketch; an error of the file is the result.

    The columns come from the cache where they are there. Else they are decoded and not kept: a thousand traces would
    remove all others from the cache. `identity`: the key of a remote trace, where it is known.
    """
    try:
        return SketchResult(spec, encode_sketches([_sketch_spec(spec, identity)]))
    except Exception as error:
        if not (is_expected(error) or isinstance(error, (LoadError, LookupError))):
            return SketchResult(spec, reason=f"{spec}: {format_error(error)}")
        reason = format_error(error) if is_expected(error) else " ".join(str(error).split())
        return SketchResult(spec, reason=reason)


def _sketch_spec(spec: str, identity: str | None):  # type: ignore[no-untyped-def]
    state = OpeningState(spec, cache=True, identity=identity)
    if not state.cached:
        state.close()
        state = OpeningState(spec, cache=False)

    def build(entry: CacheEntry) -> BuildResult:
        return decode_and_store(spec, entry.folder, ignore_progress, process_count=1, defer_blocks=True)

    opened = open_or_build(state, build)
    try:
        return sketch_trace(opened.trace)
    finally:
        if opened.cache_entry is not None:
            opened.cache_entry.close()
