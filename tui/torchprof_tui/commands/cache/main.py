"""Show or clear the disk cache: `torchprof-tui cache`."""

from __future__ import annotations

from torchprof_tui.answers.files import build_cache_use
from torchprof_tui.commands.cache import CacheOptions
from torchprof_tui.commands.common.errors import UsageError
from torchprof_tui.commands.common.output import print_answer
from torchprof_tui.trace.core.printable import clean
from torchprof_tui.trace.storage import disk_cache


def run(options: CacheOptions) -> int:
    refusal = disk_cache.explain_refused_folder()
    if options.clear and refusal is not None:
        raise UsageError(refusal)
    removed, freed = disk_cache.clear_cache() if options.clear else (None, None)
    document = build_cache_use(removed, freed)
    if options.json:
        print_answer(document)
        return 0
    if removed is not None and freed is not None:
        print(f"removed {_format_trace_count(removed)}, {freed / 1e6:.1f} MB")
    if document.cannot_tell is not None:
        print(clean(document.cannot_tell))
        return 0
    used, limit = document.bytes / 1e6, document.limit_bytes / 1e9
    print(f"{document.folder}: {_format_trace_count(document.traces)}, {used:.1f} MB of at most {limit:.1f} GB")
    return 0


def _format_trace_count(number: int) -> str:
    return f"{number} trace" if number == 1 else f"{number} traces"
