"""Print the summary of a trace as text: overview, steps, lanes, problems."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from torchprof_tui.analysis.patterns.verdict.tree_model import TimeTree
from torchprof_tui.commands.common.serving_text import build_serving_tables
from torchprof_tui.commands.common.tables import ConsoleTable, create_console, format_time_tree
from torchprof_tui.trace.core.extensions import find_source_named
from torchprof_tui.trace.core.printable import clean
from torchprof_tui.trace.core.time_format import format_duration
from torchprof_tui.ui.common.number_format import format_file_size, format_value

MAX_LISTED_STEPS = 8
MAX_LISTED_LANES = 24  # rows listed in a summary; `--json` has all
NAME_CELLS = 60  # width limit of names on a terminal; the numbers follow them

CATEGORY_MEANINGS = {
    "cpu_op": "PyTorch operators, on the CPU",
    "kernel": "kernels on the GPU",
    "cuda_runtime": "calls of the CUDA runtime, such as launches",
    "cuda_driver": "calls of the CUDA driver",
    "python_function": "Python frames and modules",
    "user_annotation": "steps and record_function ranges",
    "gpu_user_annotation": "the GPU work launched in those ranges",
    "gpu_memcpy": "copies",
    "gpu_memset": "fills",
    "overhead": "the profiler's own work",
    "Trace": "the profiler's own span",
}
"""One-line explanation of each category."""

DOCTOR_TITLES = {
    "lost": "Problems: lost",
    "repaired": "Problems: repaired",
    "odd": "Odd, but valid",
    "not recorded": "Not recorded",
}


def print_summary(name: str, summary: dict[str, Any], tree: TimeTree | None = None) -> None:
    """Print the summary on stdout. `tree`: the time of the trace by cause, None where it is unknown."""
    console = create_console()
    most = NAME_CELLS if console.is_terminal else None
    parts: list[RenderableType] = [_format_title(name, summary), _overview_table(summary)]
    if tree is not None:
        lines = "".join(f"\n{line}" for line in format_time_tree(tree))
        parts.append(
            Text(f"Time{tree.mean_note}{tree.outside_note}", style="bold").append(lines, style="not bold default")
        )
    if "ranks" in summary:
        parts.append(_rank_table(summary, most))
    elif summary["steps"]:
        parts.append(_step_table(summary, most))
    parts += build_serving_tables(summary)
    if any(card["count"] for card in summary["communication"]):
        parts.append(_communication_table(summary))
    parts.append(_category_table(summary, most))
    if "ranks" not in summary:
        lanes = summary["lanes"]
        table = ConsoleTable(f"Lanes ({len(lanes)})", "lane", "of", ">events", ">rows", max_text_cells=most)
        for lane in lanes[:MAX_LISTED_LANES]:
            table.add_cells(clean(lane["label"]), clean(lane["group"]), f"{lane['events']:,}", str(lane["rows"]))
        parts.append(_add_remainder_row(table, len(lanes) - MAX_LISTED_LANES))
    parts += _doctor_tables(summary)
    console.print(Group(*[each for part in parts for each in (part, Text())][:-1]))


def _format_title(name: str, answer: dict[str, Any]) -> Text:
    devices = [clean(str(device["name"])) for device in answer["devices"] if device["name"]]
    kinds = sorted(set(devices))
    source = find_source_named(answer["format"])
    formats = {"kineto": "torch.profiler trace", "chrome": "Chrome trace (not torch.profiler's)"}
    what = formats.get(answer["format"], clean(answer["format"] if source is None else source.label))
    title = Text(clean(name), style="bold")
    title.append(f"  {what}", style="default")
    if kinds:
        title.append(f", {', '.join(kinds)}")
    if answer["rank"] is not None:
        title.append(f", rank {answer['rank']} of {answer['world_size'] or '?'}")
    if "ranks" in answer:
        count, world = len(answer["ranks"]), answer["world_size"]
        title.append(f", {count} ranks" + (f" of {world}" if world not in (None, count) else ""))
    return title


def _overview_table(answer: dict[str, Any]) -> Table:
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim")
    table.add_column()
    duration = answer["duration_ns"]
    table.add_row("length", f"{format_duration(duration)}")
    not_drawn = sum(answer["not_drawn"].values())
    entries = f"{answer['events']:,}: {answer['drawn']:,} drawn, {answer['flows']:,} flow arrows, "
    entries += f"{answer['metadata']:,} of names and labels"
    if not_drawn:
        entries += f", {not_drawn:,} not drawn"
    table.add_row("entries", entries)
    for reason, number in answer["not_drawn"].items():
        table.add_row("", Text(f"not drawn: {number:,} {clean(reason)}", style="dim"))
    for device, busy in list(answer["gpu_busy_ns"].items())[:MAX_LISTED_LANES] if "ranks" not in answer else ():
        share = f" ({busy / duration:.1%} of the trace)" if duration else ""
        label = f"GPU {device} busy" if device != "-1" else "GPU busy"
        table.add_row(label, f"{format_duration(busy)}{share}")
    if len(answer["gpu_busy_ns"]) > MAX_LISTED_LANES:
        table.add_row("", Text(f"and {len(answer['gpu_busy_ns']) - MAX_LISTED_LANES:,} more devices", style="dim"))
    links = answer["links"]
    if links["gpu_events"]:
        linked = f"{links['linked_gpu_events']:,} of {links['gpu_events']:,} GPU events linked to their launch"
        table.add_row("launches", f"{links['launches']:,}; {linked}")
    for graphs in answer["graphs"]:
        rank = f"rank {graphs['rank']}: " if "rank" in graphs else ""
        launches = f"{graphs['launches']:,} launch{'' if graphs['launches'] == 1 else 'es'}"
        text = f"{rank}{launches} replayed {graphs['kernels']:,} kernels, copies and fills"
        if graphs["matched"]:
            text += f"; the ops of {graphs['matched']:,} are known {_OP_SOURCES[graphs['source']]}"
        table.add_row("graphs", text)
        for reason, count in graphs["unmatched"].items():
            table.add_row("", Text(f"without an op: {count:,}, {reason}", style="dim"))
        for reason, count in graphs["uncertain"].items():
            table.add_row("", Text(f"uncertain: {count:,}, {reason}", style="dim"))
    kept = "from the cache" if answer["cached"] else "decoded now"
    size = format_file_size(answer["bytes"])
    table.add_row("size", f"{size} of JSON, opened in {answer['seconds']:.2f} s, {kept}")
    return table


_OP_SOURCES = {
    "capture": "from a trace of the capture",
    "eager": "from a trace of an eager run",
    "annotations": "from annotations in the trace",
}


def _rank_table(answer: dict[str, Any], most: int | None) -> ConsoleTable:
    cut = any(rank["partial"] for rank in answer["ranks"])
    columns = (">rank", *([""] if cut else []), "file", ">events", ">steps", ">begins", ">length", ">GPU busy", "clock")
    measured = any(rank["error_ns"] is not None for rank in answer["ranks"])
    step_counts = Counter(step["rank"] for step in answer["steps"])
    busy_times = defaultdict(list)
    for key, ns in answer["gpu_busy_ns"].items():
        busy_times[key.partition(":")[0]].append(ns)
    table = ConsoleTable(f"Ranks ({len(answer['ranks'])})", *columns, max_text_cells=most)
    for rank in answer["ranks"]:
        number, duration = rank["rank"], rank["duration_ns"]
        busy = busy_times[str(number)]
        share = f"{sum(busy) / (len(busy) * duration):.1%}" if busy and duration else "–"
        error = rank["error_ns"]
        by = rank["aligned_collectives"]
        within = f", ±{format_duration(error)} from {by} collectives" if error is not None else ""
        if error is None and measured:
            within = ", not measured: no common collective"
        table.add_cells(
            str(number),
            *(["cut" if rank["partial"] else ""] if cut else []),
            clean(rank["file"].rpartition("/")[2]),
            f"{rank['drawn']:,}",
            str(step_counts[number]),
            format_duration(rank["start_ns"]),
            format_duration(duration),
            share,
            f"{rank['aligned_by']}{within}",
        )
    joined = answer["collectives"]
    said = [f"{joined['joined']:,} collectives matched"]
    for key, words in (("incomplete", "missing on a rank"), ("differing", "with another size on some ranks")):
        said += [f"{joined[key]:,} {words}"] if joined[key] else []
    for key, words in (("collectives_alone", "on one rank only"), ("collectives_before", "from before the recording")):
        count = sum(rank[key] for rank in answer["ranks"])
        said += [f"{count:,} {words}"] if count else []
    table.caption = ", ".join(said)
    return table


def _step_table(answer: dict[str, Any], most: int | None) -> ConsoleTable:
    steps = answer["steps"]
    table = ConsoleTable(f"Steps ({len(steps)})", "name", ">start", ">duration", max_text_cells=most)
    for step in steps[:MAX_LISTED_STEPS]:
        table.add_cells(clean(step["name"]), format_duration(step["start_ns"]), format_duration(step["duration_ns"]))
    return _add_remainder_row(table, len(steps) - MAX_LISTED_STEPS)


def _communication_table(answer: dict[str, Any]) -> ConsoleTable:
    cards = [card for card in answer["communication"] if card["count"]]
    several = len(answer["communication"]) > 1
    numbers = (">count", ">time", ">waiting", ">bytes", ">bus GB/s", ">best", ">link")
    table = ConsoleTable("Communication", *([">rank"] if several else []), "operation", *numbers, "waiting by")
    for card in cards:
        for row in card["operations"]:
            table.add_cells(
                *([str(card["rank"])] if several else []),
                f"{row['operation']} ({', '.join(row['libraries'])})",
                f"{row['count']:,}",
                format_duration(row["time_ns"]),
                format_duration(row["waiting_ns"]) if row["waiting_source"] else "–",
                format_value(row["bytes"], "bytes") if row["sized"] else "–",
                *("–" if row[key] is None else f"{row[key]:.3g}" for key in ("bus_gb_s", "best_bus_gb_s", "link_gb_s")),
                row["waiting_source"] or "",
            )
    lines = [f"rank {card['rank']}: {card['summary']}" if several else card["summary"] for card in cards]
    table.caption = "\n".join(lines)
    return table


def _category_table(answer: dict[str, Any], most: int | None) -> ConsoleTable:
    by_category = sorted(answer["by_category"].items(), key=lambda item: -item[1])
    table = ConsoleTable("What was recorded", "category", ">events", "", max_text_cells=most)
    for category, number in by_category[:MAX_LISTED_LANES]:
        meaning = Text(CATEGORY_MEANINGS.get(category, ""), style="dim")
        table.add_cells(clean(category or "(none)"), f"{number:,}", meaning)
    return _add_remainder_row(table, len(by_category) - MAX_LISTED_LANES)


def _doctor_tables(answer: dict[str, Any]) -> list[RenderableType]:
    found: list[RenderableType] = []
    for section, title in DOCTOR_TITLES.items():
        remarks = [remark for remark in answer["doctor"] if remark["section"] == section]
        if not remarks:
            continue
        missing = section == "not recorded"
        columns = ("what", "to record it") if missing else (">times", "what", "for example")
        table = ConsoleTable(title, *columns)
        for remark in remarks:
            said = clean(remark["action"] if missing else remark["example"] or remark["meaning"])
            table.add_cells(*([] if missing else [f"{remark['count']:,}"]), clean(remark["kind"]), said)
        found.append(table)
    return found


def _add_remainder_row(table: ConsoleTable, more: int) -> ConsoleTable:
    if more > 0:
        table.add_cells(Text(f"and {more:,} more", style="dim"))
    return table
