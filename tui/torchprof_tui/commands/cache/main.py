"""Show or clear the disk cache: `torchprof-tui cache`."""

from __future__ import annotations

import argparse
import json

from torchprof_tui.trace.storage import disk_cache


def run(options: argparse.Namespace) -> int:
    folder = disk_cache.cache_folder()
    removed = freed = 0
    if options.clear:
        removed, freed = disk_cache.clear_cache()
    traces, size = disk_cache.cache_usage()
    has_folder = folder != disk_cache.NO_FOLDER
    if options.json:
        answer = {
            "folder": str(folder) if has_folder else None,
            "traces": traces,
            "bytes": size,
            "limit_bytes": disk_cache.cache_limit(),
        }
        if options.clear:
            answer |= {"removed": removed, "freed_bytes": freed}
        print(json.dumps(answer))
        return 0
    if options.clear:
        print(f"removed {_format_trace_count(removed)}, {freed / 1e6:.1f} MB")
    if not has_folder:
        print("no home folder, so no cache; TORCHPROF_TUI_CACHE can name a folder for it")
        return 0
    limit = disk_cache.cache_limit()
    print(f"{folder}: {_format_trace_count(traces)}, {size / 1e6:.1f} MB of at most {limit / 1e9:.1f} GB")
    return 0


def _format_trace_count(number: int) -> str:
    return f"{number} trace" if number == 1 else f"{number} traces"
