"""Build the JSON documents of the commands about an open trace, with the rows of their events added.

Numbers are those of `--json`, from the same functions. What is added is named `row`: the index of an event.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from torchprof_tui.analysis.dispatch.chain import find_chain
from torchprof_tui.analysis.dispatch.source_line import SourceLineFinder
from torchprof_tui.analysis.flame.flame_export import iterate_folded_lines
from torchprof_tui.analysis.memory.memory_history import build_memory_history, explain_missing_memory
from torchprof_tui.analysis.patterns.engine import check_scope as scopes
from torchprof_tui.analysis.patterns.verdict.check_report import check_trace
from torchprof_tui.answers.chain import ChainQuestion, build_chain, find_place_in_time
from torchprof_tui.answers.check import build_check
from torchprof_tui.answers.critical_path import build_critical_path
from torchprof_tui.answers.info import build_info, measure_time
from torchprof_tui.answers.losses import build_losses
from torchprof_tui.answers.record import as_fields
from torchprof_tui.commands.chain.main import find_event
from torchprof_tui.commands.chain.options import ChainOptions
from torchprof_tui.commands.check.options import CheckOptions
from torchprof_tui.commands.common.errors import UsageError
from torchprof_tui.commands.common.load import select_rank
from torchprof_tui.commands.common.options import parse_time_range
from torchprof_tui.commands.critical_path.main import find_path
from torchprof_tui.commands.critical_path.options import CriticalPathOptions
from torchprof_tui.commands.export.options import ExportOptions
from torchprof_tui.commands.export.writers import fold_chosen
from torchprof_tui.commands.info.options import InfoOptions
from torchprof_tui.commands.mcp.open_traces import OpenTrace
from torchprof_tui.commands.memory.main import answer_question as find_alive
from torchprof_tui.commands.memory.options import MemoryOptions
from torchprof_tui.commands.table.main import answer_question
from torchprof_tui.commands.table.options import TableOptions
from torchprof_tui.commands.what_if.main import answer_question as predict_step
from torchprof_tui.commands.what_if.options import WhatIfOptions
from torchprof_tui.trace.model.trace import Trace

Fields = dict[str, Any]


def ask_info(asked: OpenTrace, options: InfoOptions) -> Fields:
    tree, reason = measure_time(asked.trace)
    fields = as_fields(build_info(asked.opened, tree, reason))
    name_rows(fields["steps"])
    return fields


def ask_check(asked: OpenTrace, options: CheckOptions) -> Fields:
    times = None if options.range is None else parse_time_range(options.range)
    scope = scopes.default_scope(asked.trace) if times is None else scopes.range_scope(*times)
    return as_fields(build_check(check_trace(asked.trace, scope)))


def ask_table(asked: OpenTrace, options: TableOptions) -> Fields:
    fields = as_fields(answer_question(asked.trace, options))
    fields["partial"] = _list_losses(asked)
    return fields


def list_rows_with_events(asked: OpenTrace, rank: int | None, rows: list[Fields]) -> list[Fields]:
    """Return rows of a table with the longest event of each name; rows of groups have none."""
    trace, chosen = select_rank(asked.trace, rank)
    first = 0 if chosen is None else chosen.first
    longest = find_longest_events(trace, [row["name"] for row in rows])
    found = [longest.get(row["name"]) for row in rows]
    return [
        {
            **row,
            "longest_row": None if event is None else event + first,
            "longest_start_ns": None if event is None else int(trace.start[event]),
        }
        for row, event in zip(rows, found, strict=True)
    ]


def ask_chain(asked: OpenTrace, options: ChainOptions) -> Fields:
    trace, rank = select_rank(asked.trace, options.rank)
    event, count = find_event(trace, options.event, options.nth)
    found = find_chain(trace, event)
    line = SourceLineFinder(trace).find_chain_line(found)
    fields = as_fields(build_chain(trace, found, line, ChainQuestion(options.event, options.nth, count), rank))
    row = event + (0 if rank is None else rank.first)
    return {"row": row, "start_ns": int(trace.start[event]), **fields}


def ask_what_if(asked: OpenTrace, options: WhatIfOptions) -> Fields:
    return as_fields(predict_step(asked.trace, options))


def ask_critical_path(asked: OpenTrace, options: CriticalPathOptions) -> Fields:
    """Build the document of `critical-path --json`, with the row of each event."""
    times = None if options.range is None else parse_time_range(options.range)
    trace, rank, path = find_path(asked.trace, options.step, times, options.rank)
    number = trace.rank if rank is None else rank.number
    fields = as_fields(build_critical_path(trace, path, options.top, number))
    first = 0 if rank is None else rank.first
    for each, told in zip(path.find_longest(options.top), fields["events"], strict=True):
        told["row"] = each.event + first
    return fields


def ask_memory_at(asked: OpenTrace, options: MemoryOptions) -> Fields:
    """Build the document of `memory --json`; of a trace without memory records only why it cannot be told."""
    trace, _ = select_rank(asked.trace, options.rank)
    if build_memory_history(trace) is None:
        return {"cannot_tell": explain_missing_memory(trace), "partial": _list_losses(asked)}
    fields = as_fields(find_alive(asked.trace, options))
    name_rows(fields["alive"])
    return fields


def ask_flame(asked: OpenTrace, options: ExportOptions) -> Fields:
    """Build the lines of `export --folded`, longest first, each with the first event of its stack."""
    trace, rank = select_rank(asked.trace, options.rank) if options.rank is not None else (asked.trace, None)
    tree = fold_chosen(trace, options)
    nodes = np.flatnonzero(tree.value_ns[1:]) + 1
    lines = [line.rstrip("\n") for line in iterate_folded_lines(tree)]
    order = np.argsort(-tree.value_ns[nodes], kind="stable").tolist()
    rows = tree.first_event[nodes].tolist()
    first = 0 if rank is None else rank.first
    return {
        "by": tree.fold_by.value,
        "time": tree.time.value,
        "total_ns": tree.total,
        "without_frames_ns": tree.missing_ns,
        "stack_count": len(lines),
        "stacks": [_build_stack(trace, lines[index], rows[index], first) for index in order],
        "partial": _list_losses(asked),
    }


def _build_stack(trace: Any, line: str, row: int, first: int) -> Fields:
    path, _, value = line.rpartition(" ")
    known = row >= 0
    return {
        "self_ns": int(value),
        "stack": path,
        "row": row + first if known else None,
        "start_ns": int(trace.start[row]) if known else None,
    }


def add_diff_rows(fields: Fields, a: OpenTrace, b: OpenTrace) -> None:
    """Add the longest event of each op on both sides; not for runs of several ranks, of which one is compared."""
    for side, opened in (("a", a), ("b", b)):
        if opened.trace.merged_ranks is not None:
            continue
        longest = find_longest_events(opened.trace, [row.get(f"name_{side}") or "" for row in fields["ops"]])
        for row in fields["ops"]:
            row[f"longest_row_{side}"] = longest.get(row.get(f"name_{side}") or "")


def name_event(asked: OpenTrace, row: int) -> tuple[str, int, int | None]:
    """Return (name, nth, rank) that `chain` takes for an event. `rank`: None for a trace of one process."""
    if row >= len(asked.trace):
        raise UsageError(f"row {row}: {asked.spec} has {len(asked.trace):,} events")
    trace, local, rank = split_row(asked.trace, row)
    place = find_place_in_time(trace, local)
    return place.event, place.nth, rank


def name_rows(records: list[Fields]) -> None:
    """Name the number of an event `row`, as all tools do."""
    for record in records:
        record["row"] = record.pop("event", None)


def _list_losses(asked: OpenTrace) -> list[Fields]:
    return [as_fields(problem) for problem in build_losses(asked.trace)]


MAX_NAMES = 1000
"""Names that are looked up for one answer: each reads the column of names."""


def find_longest_events(trace: Trace, names: Iterable[str]) -> dict[str, int]:
    """Find the longest event of each name; names that no event has, as those of groups, are left out."""
    indexes = {name: index for index, name in enumerate(trace.names)}
    found = {}
    for name in list(dict.fromkeys(names))[:MAX_NAMES]:
        if (index := indexes.get(name)) is not None:
            rows = np.flatnonzero(trace.name == index)
            if len(rows):
                found[name] = int(rows[np.argmax(trace.duration[rows])])
    return found


def split_row(trace: Trace, row: int) -> tuple[Trace, int, int | None]:
    """Return the trace that a row is of, its row there, and the number of its rank; None without several ranks."""
    if trace.merged_ranks is None:
        return trace, row, None
    rank = next(each for each in trace.merged_ranks.all if each.first <= row < each.last)
    return rank.trace, row - rank.first, rank.number
