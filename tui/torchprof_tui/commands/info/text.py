"""The summary of a trace as a person reads it: what it is, its steps, its lanes, what was odd about it."""

from __future__ import annotations

from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from torchprof_tui.commands.common.tables import Rows, stdout
from torchprof_tui.trace.core.time_format import format_duration
from torchprof_tui.ui.common.name_display import clean
from torchprof_tui.ui.common.number_format import format_value

STEPS = 8
LANES = 24
"""More than these say more than a summary should; `--json` has all of them."""

NAME_CELLS = 60
"""Of a name, on a terminal: beyond, the numbers behind it are too far away to be read together."""

CATEGORIES = {
    "cpu_op": "PyTorch operators, on the CPU",
    "kernel": "kernels: what the GPU ran",
    "cuda_runtime": "calls into the CUDA runtime, launches among them",
    "cuda_driver": "calls into the CUDA driver",
    "python_function": "Python frames and modules",
    "user_annotation": "steps and record_function ranges",
    "gpu_user_annotation": "those ranges as the GPU saw them",
    "gpu_memcpy": "copies",
    "gpu_memset": "fills",
    "overhead": "the profiler's own work",
    "Trace": "the profiler's own span",
}
"""What the categories mean, for somebody who meets them here."""

DOCTOR = {
    "lost": "Problems: lost",
    "repaired": "Problems: repaired",
    "odd": "Odd, but valid",
    "not recorded": "Not recorded",
}


def show(name: str, answer: dict[str, Any]) -> None:
    """Print the summary on stdout: with colour and at the terminal's width there, plain into a pipe."""
    console = stdout()
    most = NAME_CELLS if console.is_terminal else None
    parts: list[RenderableType] = [_title(name, answer), _facts(answer)]
    if "ranks" in answer:
        parts.append(_ranks(answer, most))
    elif answer["steps"]:
        parts.append(_steps(answer, most))
    parts.append(_categories(answer, most))
    if "ranks" not in answer:
        parts.append(_lanes(answer, most))
    parts += _doctor(answer)
    console.print(Group(*_spaced(parts)))


def _spaced(parts: list[RenderableType]) -> list[RenderableType]:
    spaced: list[RenderableType] = []
    for part in parts:
        spaced += [part, Text()]
    return spaced[:-1]


def _title(name: str, answer: dict[str, Any]) -> Text:
    devices = [clean(str(device["name"])) for device in answer["devices"] if device["name"]]
    kinds = sorted(set(devices))
    what = "torch.profiler trace" if answer["format"] == "kineto" else "Chrome trace (not torch.profiler's)"
    title = Text(clean(name), style="bold")
    title.append(f"  {what}", style="default")
    if kinds:
        title.append(f", {', '.join(kinds)}")
    if answer["rank"] is not None:
        title.append(f", rank {answer['rank']} of {answer['world_size'] or '?'}")
    if "ranks" in answer:
        title.append(f", {len(answer['ranks'])} ranks" + _of(answer))
    return title


def _of(answer: dict[str, Any]) -> str:
    """Where some of the ranks are missing."""
    world: int | None = answer["world_size"]
    return f" of {world}" if world is not None and world != len(answer["ranks"]) else ""


def _facts(answer: dict[str, Any]) -> Table:
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
    for device, busy in list(answer["gpu_busy_ns"].items())[:LANES] if "ranks" not in answer else ():
        share = f" ({busy / duration:.1%} of the trace)" if duration else ""
        label = f"GPU {device} busy" if device != "-1" else "GPU busy"
        table.add_row(label, f"{format_duration(busy)}{share}")
    if len(answer["gpu_busy_ns"]) > LANES:
        table.add_row("", Text(f"and {len(answer['gpu_busy_ns']) - LANES:,} more devices", style="dim"))
    links = answer["links"]
    if links["gpu_events"]:
        linked = f"{links['linked_gpu_events']:,} of {links['gpu_events']:,} GPU events joined to their launch"
        table.add_row("launches", f"{links['launches']:,}; {linked}")
    kept = "from the cache" if answer["cached"] else "decoded now"
    size = format_value(answer["bytes"], "bytes")
    table.add_row("size", f"{size} of JSON, opened in {answer['seconds']:.2f} s, {kept}")
    return table


def _ranks(answer: dict[str, Any], most: int | None) -> Rows:
    """A line a rank: how much it recorded, how busy its GPUs were, and how far its clock is to be trusted."""
    numbers = [(name, "right") for name in ("events", "steps", "begins", "length", "GPU busy")]
    cut = any(rank["partial"] for rank in answer["ranks"])
    columns = [("rank", "right"), *([("", "left")] if cut else []), ("file", "left"), *numbers, ("clock", "left")]
    measured = any(rank["error_ns"] is not None for rank in answer["ranks"])
    table = Rows(f"Ranks ({len(answer['ranks'])})", *columns, most=most)
    for rank in answer["ranks"]:
        number, duration = rank["rank"], rank["duration_ns"]
        busy = [ns for key, ns in answer["gpu_busy_ns"].items() if key.partition(":")[0] == str(number)]
        share = f"{sum(busy) / (len(busy) * duration):.1%}" if busy and duration else "–"
        error = rank["error_ns"]
        by = rank["aligned_collectives"]
        within = f", ±{format_duration(error)} by {by} collectives" if error is not None else ""
        if error is None and measured:
            within = ", no collective to measure it by"
        table.add(
            str(number),
            *(["cut" if rank["partial"] else ""] if cut else []),
            clean(rank["file"].rpartition("/")[2]),
            f"{rank['drawn']:,}",
            str(sum(step["rank"] == number for step in answer["steps"])),
            format_duration(rank["start_ns"]),
            format_duration(duration),
            share,
            f"{rank['aligned_by']}{within}",
        )
    joined = answer["collectives"]
    said = [f"{joined['joined']:,} collectives joined"]
    for key, words in (("incomplete", "lacked by a rank"), ("differing", "of which the ranks say another size")):
        said += [f"{joined[key]:,} {words}"] if joined[key] else []
    for key, words in (("collectives_alone", "on one rank alone"), ("collectives_before", "from before the recording")):
        count = sum(rank[key] for rank in answer["ranks"])
        said += [f"{count:,} {words}"] if count else []
    table.caption, table.caption_justify = ", ".join(said), "left"
    return table


def _steps(answer: dict[str, Any], most: int | None) -> Rows:
    steps = answer["steps"]
    table = Rows(f"Steps ({len(steps)})", ("name", "left"), ("start", "right"), ("duration", "right"), most=most)
    for step in steps[:STEPS]:
        table.add(clean(step["name"]), format_duration(step["start_ns"]), format_duration(step["duration_ns"]))
    return _rest(table, len(steps) - STEPS)


def _categories(answer: dict[str, Any], most: int | None) -> Rows:
    by_category = sorted(answer["by_category"].items(), key=lambda item: -item[1])
    table = Rows("What was recorded", ("category", "left"), ("events", "right"), ("", "left"), most=most)
    for category, number in by_category[:LANES]:
        meaning = Text(CATEGORIES.get(category, ""), style="dim")
        table.add(clean(category or "(none)"), f"{number:,}", meaning)
    return _rest(table, len(by_category) - LANES)


def _lanes(answer: dict[str, Any], most: int | None) -> Rows:
    lanes = answer["lanes"]
    columns = (("lane", "left"), ("of", "left"), ("events", "right"), ("rows", "right"))
    table = Rows(f"Lanes ({len(lanes)})", *columns, most=most)
    for lane in lanes[:LANES]:
        table.add(clean(lane["label"]), clean(lane["group"]), f"{lane['events']:,}", str(lane["rows"]))
    return _rest(table, len(lanes) - LANES)


def _doctor(answer: dict[str, Any]) -> list[RenderableType]:
    """A table for each section that has anything; what was not recorded comes with the option that records it."""
    found: list[RenderableType] = []
    for section, title in DOCTOR.items():
        remarks = [remark for remark in answer["doctor"] if remark["section"] == section]
        if not remarks:
            continue
        missing = section == "not recorded"
        columns = (("what", "left"), ("to record it", "left")) if missing else (
            ("times", "right"), ("what", "left"), ("for example", "left"),
        )  # fmt: skip
        table = Rows(title, *columns)
        for remark in remarks:
            kind = clean(remark["kind"])
            said = clean(remark["action"] if missing else remark["example"] or remark["meaning"])
            cells = [] if missing else [f"{remark['count']:,}"]
            table.add(*cells, kind, said)
        found.append(table)
    return found


def _rest(table: Rows, more: int) -> Rows:
    if more > 0:
        table.add(Text(f"and {more:,} more", style="dim"))
    return table
