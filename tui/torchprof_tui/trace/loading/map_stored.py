"""Map the columns that were stored for a trace, under the user's name for it."""

from __future__ import annotations

from dataclasses import replace

from torchprof_tui.trace.loading.capture_files import CaptureFiles
from torchprof_tui.trace.model.trace import Trace
from torchprof_tui.trace.storage.disk_cache import CacheEntry
from torchprof_tui.trace.storage.trace_store import OtherVersionError as OtherVersionError
from torchprof_tui.trace.storage.trace_store import open_trace


def map_stored(entry: CacheEntry, label: str, spec: str, cache: bool, verify: bool = False) -> Trace:
    """Map the columns in an entry's folder; `verify` as in `open_trace`.

    Captures are looked for beside `spec`, and kept in the cache with `cache`.
    """
    return replace(open_trace(entry.folder, verify), label=label, captures=CaptureFiles(spec, cache=cache))
