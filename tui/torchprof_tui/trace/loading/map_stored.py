"""Map the columns that were stored for a trace, under the user's name for it."""

from __future__ import annotations

from dataclasses import replace

from torchprof_tui.trace.loading.capture_files import CaptureFiles
from torchprof_tui.trace.model.trace import Trace
from torchprof_tui.trace.storage.disk_cache import CacheEntry
from torchprof_tui.trace.storage.trace_store import OtherVersionError as OtherVersionError
from torchprof_tui.trace.storage.trace_store import open_trace


def map_stored(entry: CacheEntry, label: str, spec: str, captures: tuple[str, ...] = (), verify: bool = False) -> Trace:
    """Map the columns in an entry's folder; `verify` as in `open_trace`.

    `captures`: files and folders that the user named; without any, captures are looked for beside `spec`. A trace that
    is not kept in the cache has captures that are not kept there either.
    """
    files = CaptureFiles(spec, captures, cache=entry.key is not None)
    return replace(open_trace(entry.folder, verify), label=label, captures=files)
