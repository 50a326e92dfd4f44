"""Summarise a trace as text or JSON: `torchprof-tui info`."""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from typing import Any

from torchprof_tui.analysis.collectives.communication_card import build_communication_card
from torchprof_tui.analysis.collectives.late_arrivals import compute_arrivals
from torchprof_tui.analysis.doctor.examination import diagnose_trace
from torchprof_tui.analysis.graphs.captured_ops import DOUBT_TEXT, REASON_TEXT, get_captured_ops
from torchprof_tui.analysis.patterns.engine.check_scope import default_scope
from torchprof_tui.analysis.patterns.engine.gpu_idle_causes import GapFinder
from torchprof_tui.analysis.patterns.engine.scope_view import ScopeView
from torchprof_tui.analysis.patterns.engine.trace_tables import TraceTables
from torchprof_tui.analysis.patterns.verdict.cpu_only import build_cpu_time_tree
from torchprof_tui.analysis.patterns.verdict.time_tree import TimeTree, build_time_tree
from torchprof_tui.analysis.patterns.verdict.tree_lines import merge_trees
from torchprof_tui.analysis.time.gpu_time import compute_busy_ns_by_device
from torchprof_tui.commands.common.captures import use_captures
from torchprof_tui.commands.common.load import load_specs
from torchprof_tui.commands.common.time_tree import time_tree_as_json
from torchprof_tui.commands.info.remote_folder import print_folder
from torchprof_tui.trace.loading.open_or_build import OpenedTrace
from torchprof_tui.trace.model.lanes import Role
from torchprof_tui.trace.model.ranks import Ranks
from torchprof_tui.trace.model.trace import Trace
from torchprof_tui.trace.specs.folder_error import FolderError


def run(options: argparse.Namespace) -> int:
    try:
        loaded = load_specs(options.trace, cache=not options.no_cache, list_folders=True)
    except FolderError as folder:
        if not folder.traces:
            raise

        print_folder(folder, options.json)
        return 0
    loaded = replace(loaded, trace=use_captures(loaded.trace, options))
    tree = measure_time(loaded.trace)
    answer = summary(loaded) | {"time": time_tree_as_json(tree)}
    if options.json:
        print(json.dumps(answer))
        return 0

    from torchprof_tui.commands.info.text import print_summary  # deferred: JSON needs no rich

    print_summary(loaded.trace.label, answer, tree)
    return 0


def measure_time(trace: Trace) -> TimeTree | None:
    """Divide the time of the trace by cause, over all ranks; None where it is unknown. No pattern is checked."""
    scope = default_scope(trace)
    trees = []
    for rank in trace.all_ranks:
        tables = TraceTables(rank.trace)
        view = ScopeView(tables, GapFinder(tables), scope)
        tree = None
        if not view.missing_window_reason():
            tree = build_time_tree(view)
        elif not len(tables.work) and not tables.data_loss:  # what was lost may be the GPU's work
            tree = build_cpu_time_tree(view)
        if tree is not None:
            trees.append(tree)
    return merge_trees(trees)


def summary(loaded: OpenedTrace) -> dict[str, Any]:
    """Build the JSON of `info`; times in ns from the first event of the trace, or of the earliest rank."""
    trace = loaded.trace
    counts = trace.counts
    first, last = trace.span
    answer: dict[str, Any] = {
        "format": trace.format,
        "bytes": trace.size,
        "events": counts.events,
        "drawn": counts.drawn,
        "metadata": counts.metadata,
        "flows": counts.flows,
        "not_drawn": counts.not_drawn,
        "by_category": counts.by_category,
        "duration_ns": last - first,
        "steps": _steps_as_json(trace),
        "lanes": _lanes_as_json(trace),
        "devices": [{"id": device.id, "name": device.name} for device in trace.devices],
        "gpu_busy_ns": _gpu_busy_ns(trace),
        "communication": _communication_as_json(trace),
        "rank": trace.rank,
        "world_size": trace.world_size,
        "links": {
            "launches": trace.links.launches,
            "gpu_events": trace.links.gpu_events,
            "linked_gpu_events": trace.links.linked_gpu_events,
        },
        "graphs": _graphs_as_json(trace),
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
            for remark in diagnose_trace(trace).remarks
        ],
        "seconds": round(loaded.seconds, 4),
        "cached": loaded.cached,
    }
    if trace.merged_ranks is not None:
        answer |= _ranks_as_json(trace.merged_ranks)
    return answer


def _lanes_as_json(trace: Trace) -> list[dict[str, Any]]:
    return [
        {
            "kind": lane.kind,
            "role": lane.role.value,
            "pid": lane.pid,
            "tid": lane.tid,
            "label": lane.label,
            "group": lane.group,
            "events": len(lane),
            "rows": lane.rows,
            **({} if lane.rank is None else {"rank": lane.rank}),
        }
        for lane in trace.lanes
        if lane.role is not Role.RANK
    ]


def _steps_as_json(trace: Trace) -> list[dict[str, Any]]:
    """List the steps, of all ranks with their rank."""
    if trace.merged_ranks is None:
        return [{"name": step.name, "start_ns": step.start, "duration_ns": step.duration} for step in trace.steps]
    return [{**step, "rank": rank.number} for rank in trace.merged_ranks.all for step in _steps_as_json(rank.trace)]


def _gpu_busy_ns(trace: Trace) -> dict[str, int]:
    """Return GPU busy time in ns by device, or by `RANK:DEVICE`, because each rank may number its device 0."""
    if trace.merged_ranks is None:
        return {str(device): busy for device, busy in compute_busy_ns_by_device(trace).items()}
    return {
        f"{rank.number}:{device}": busy
        for rank in trace.merged_ranks.all
        for device, busy in _gpu_busy_ns(rank.trace).items()
    }


def _graphs_as_json(trace: Trace) -> list[dict[str, Any]]:
    """Summarise the replays of graphs of each rank, of a single trace once; nothing where there are none."""
    if trace.merged_ranks is not None:
        ranks = trace.merged_ranks.all
        return [{**graphs, "rank": rank.number} for rank in ranks for graphs in _graphs_as_json(rank.trace)]
    ops = get_captured_ops(trace)
    if ops is None:
        return []
    return [
        {
            "launches": len(ops.replays),
            "kernels": len(ops.replays.work),
            "matched": ops.matched_count,
            "source": ops.source.value,
            "unmatched": {REASON_TEXT[reason]: count for reason, count in ops.count_reasons().items()},
            "uncertain": {DOUBT_TEXT[doubt]: count for doubt, count in ops.count_doubts().items()},
            "captures": [capture.label for capture in ops.captures],
        }
    ]


def _communication_as_json(trace: Trace) -> list[dict[str, Any]]:
    """Build the communication card of each rank, of a single trace one; see `CommunicationCard`."""
    if trace.merged_ranks is None:
        return [{"rank": trace.rank, **build_communication_card(trace).as_json()}]
    arrivals = compute_arrivals(trace.merged_ranks)
    return [
        {
            "rank": rank.number,
            **build_communication_card(rank.trace, arrivals=arrivals, rank_index=rank_index).as_json(),
        }
        for rank_index, rank in enumerate(trace.merged_ranks.all)
    ]


def _ranks_as_json(ranks: Ranks) -> dict[str, Any]:
    """List the ranks, how their clocks were aligned, and how many collectives were matched."""
    meetings = ranks.matched_collectives
    return {
        "ranks": [
            {
                "rank": rank.number,
                "file": rank.file,
                "events": rank.trace.counts.events,
                "drawn": rank.trace.counts.drawn,
                "start_ns": rank.trace.span[0],
                "duration_ns": rank.trace.span[1] - rank.trace.span[0],
                "shift_ns": rank.clock.shift,
                "partial": rank.partial,
                "aligned_by": rank.clock.method.value,
                "error_ns": rank.clock.error,
                "aligned_collectives": rank.clock.collective_count,
                "collectives_alone": int(meetings.unmatched[place]),
                "collectives_before": int(meetings.before_recording[place]),
            }
            for place, rank in enumerate(ranks.all)
        ],
        "lost_ranks": [{"rank": lost.number, "file": lost.file, "why": lost.reason} for lost in ranks.lost],
        "collectives": {
            "joined": len(meetings),
            "incomplete": int((meetings.missing_ranks > 0).sum()),
            "differing": int(meetings.is_mismatched.sum()),
        },
    }
