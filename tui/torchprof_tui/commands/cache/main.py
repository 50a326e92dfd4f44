"""Show or clear the disk cache: `torchprof-tui cache`."""

from __future__ import annotations

import argparse

from torchprof_tui.answers.files import NO_CACHE, build_cache_use
from torchprof_tui.commands.common.output import print_answer
from torchprof_tui.trace.storage import disk_cache


def run(options: argparse.Namespace) -> int:
    removed, freed = disk_cache.clear_cache() if options.clear else (None, None)
    document = build_cache_use(removed, freed)
    if options.json:
        print_answer(document)
        return 0
    if removed is not None and freed is not None:
        print(f"removed {_format_trace_count(removed)}, {freed / 1e6:.1f} MB")
    if document.folder is None:
        print(NO_CACHE)
        return 0
    used, limit = document.bytes / 1e6, document.limit_bytes / 1e9
    print(f"{document.folder}: {_format_trace_count(document.traces)}, {used:.1f} MB of at most {limit:.1f} GB")
    return 0


def _format_trace_count(number: int) -> str:
    return f"{number} trace" if number == 1 else f"{number} traces"
