"""`torchprof-tui info TRACE`: what a trace holds, for a person or as JSON."""

from __future__ import annotations

import argparse
import json
import sys
from typing import TYPE_CHECKING, Any

from tui.specs import check, resolve

if TYPE_CHECKING:
    from tui.trace.loader import Loaded


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "trace",
        metavar="TRACE",
        help="a trace, host:path, a URL, sample:NAME, - for stdin; or host:folder/ for the traces in it",
    )
    parser.add_argument("--json", action="store_true", help="one JSON document on stdout")
    parser.add_argument("--no-cache", action="store_true", help="neither use nor keep what was decoded")


def run(options: argparse.Namespace) -> int:
    path = resolve(options.trace)
    check(path)
    from tui.commands.progress_line import ProgressLine
    from tui.trace import cache
    from tui.trace.loader import load_place
    from tui.trace.source import FolderError

    told = ProgressLine(sys.stderr)
    try:
        loaded = load_place(path, told, cache=not options.no_cache)
    except FolderError as folder:
        if not folder.found:
            raise
        from tui.commands.listing import show_folder

        show_folder(folder, options.json)
        return 0
    finally:
        told.clear()
    answer = summary(loaded)
    if not loaded.cached:
        cache.prune()
    if options.json:
        print(json.dumps(answer))
        return 0
    from tui.commands.info_table import show

    show(options.trace, answer)
    return 0


def summary(loaded: Loaded) -> dict[str, Any]:
    """What `info --json` prints; times in ns from the trace's first event."""
    from tui.analysis.doctor.examine import examined
    from tui.analysis.gpu_time import busy_ns_by_device

    trace = loaded.trace
    counts = trace.counts
    first, last = trace.span
    return {
        "format": trace.format,
        "bytes": trace.size,
        "events": counts.events,
        "drawn": counts.drawn,
        "metadata": counts.metadata,
        "flows": counts.flows,
        "not_drawn": counts.not_drawn,
        "by_category": counts.by_category,
        "duration_ns": last - first,
        "steps": [{"name": step.name, "start_ns": step.start, "duration_ns": step.duration} for step in trace.steps],
        "lanes": [
            {
                "kind": lane.kind,
                "role": lane.role.value,
                "pid": lane.pid,
                "tid": lane.tid,
                "label": lane.label,
                "group": lane.group,
                "events": len(lane),
                "rows": lane.rows,
            }
            for lane in trace.lanes
        ],
        "devices": [{"id": device.get("id"), "name": device.get("name", "")} for device in trace.devices],
        "gpu_busy_ns": {str(device): busy for device, busy in busy_ns_by_device(trace).items()},
        "rank": trace.rank,
        "world_size": trace.world_size,
        "links": {
            "launches": trace.links.launches,
            "gpu_events": trace.links.gpu_events,
            "linked_gpu_events": trace.links.linked_gpu_events,
        },
        "problems": [
            {"kind": problem.kind, "count": problem.count, "example": problem.example} for problem in trace.problems
        ],
        "doctor": [
            {
                "section": remark.section.value,
                "kind": remark.kind,
                "count": remark.count,
                "meaning": remark.meaning,
                "example": remark.example,
                "action": remark.action,
            }
            for remark in examined(trace).remarks
        ],
        "seconds": round(loaded.seconds, 4),
        "cached": loaded.cached,
    }
