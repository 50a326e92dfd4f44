"""Answer each tool's question: the documents of the commands, the parts that help first."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar, get_type_hints

import numpy as np

from torchprof_tui.analysis.dispatch.chain import find_chain
from torchprof_tui.analysis.dispatch.source_line import SourceLineFinder
from torchprof_tui.analysis.flame.flame_tree import iterate_folded_lines
from torchprof_tui.analysis.memory.memory_history import build_memory_history, explain_missing_memory
from torchprof_tui.analysis.patterns.engine import check_scope as scopes
from torchprof_tui.analysis.patterns.verdict.check_report import check_trace
from torchprof_tui.analysis.slicing.slice_writer import OUTPUT_SUFFIXES, SliceError, SliceResult, write_slice
from torchprof_tui.answers.chain import ChainQuestion, build_chain, find_place_in_time
from torchprof_tui.answers.check import build_check
from torchprof_tui.answers.critical_path import build_critical_path
from torchprof_tui.answers.diff import build_diff
from torchprof_tui.answers.files import build_slice
from torchprof_tui.answers.info import build_info, measure_time
from torchprof_tui.answers.losses import build_losses
from torchprof_tui.answers.record import as_fields
from torchprof_tui.answers.what_if import build_what_if
from torchprof_tui.commands.chain import ChainOptions
from torchprof_tui.commands.chain.main import find_event
from torchprof_tui.commands.check import CheckOptions
from torchprof_tui.commands.common.errors import UsageError
from torchprof_tui.commands.common.load import select_rank
from torchprof_tui.commands.common.options import Options, parse_time_range
from torchprof_tui.commands.critical_path import CriticalPathOptions
from torchprof_tui.commands.critical_path.main import find_path
from torchprof_tui.commands.diff import DiffOptions
from torchprof_tui.commands.diff.main import load_comparison
from torchprof_tui.commands.export import ExportOptions
from torchprof_tui.commands.export.main import fold_chosen
from torchprof_tui.commands.info import InfoOptions
from torchprof_tui.commands.mcp import questions as asks
from torchprof_tui.commands.mcp.bounded_text import clean_values, pack_records, split_common_frames, write_bounded
from torchprof_tui.commands.mcp.open_traces import AllowedFolders, OpenTrace, OpenTraces, list_samples
from torchprof_tui.commands.memory import MemoryOptions
from torchprof_tui.commands.memory.main import answer_question as find_alive
from torchprof_tui.commands.slice import SliceOptions
from torchprof_tui.commands.snapshot import SnapshotOptions
from torchprof_tui.commands.table import TableOptions
from torchprof_tui.commands.table.main import answer_question
from torchprof_tui.commands.what_if import WhatIfOptions
from torchprof_tui.commands.what_if.main import predict
from torchprof_tui.trace.core.atomic_file import OutputError
from torchprof_tui.trace.core.printable import clean
from torchprof_tui.trace.core.records import record
from torchprof_tui.trace.model.trace import Trace

Fields = dict[str, Any]
Method = TypeVar("Method", bound=Callable[..., str])
AnyOptions = TypeVar("AnyOptions", bound=Options)

PROGRAM = "torchprof-tui"
MAX_EVIDENCE = 3
MAX_LISTED_TRACES = 200
_OVERVIEW_KEYS = ("format", "bytes", "events", "duration_ns", "steps", "devices", "gpu_busy_ns", "rank", "world_size")
_FINDING_KEYS = (
    "id", "severity", "seen", "at_stake_us", "share", "won_share", "leading", "action", "line", "evidence_count",
)  # fmt: skip
_DIFF_KEYS = (
    "a", "b", "same_recording", "comparable", "step_us", "verdict", "ranks", "divided", "launches", "gpu_work",
)  # fmt: skip
_PATH_LISTS = ("segments", "ranks", "rank_changes", "events", "off_path")
_MEMORY_LISTS = ("groups", "alive", "before_window")
_MORE = "ask with a larger max_tokens"
_FEWER_ROWS = "ask with a smaller limit or a larger max_tokens"


@record
class ToolEntry:
    """One tool: the class of its arguments, the function that answers it, and what it is good for."""

    question: type[asks.Question]
    answer: Callable[[Answerer, Any], str]
    description: str
    writes: bool = False


TOOLS: dict[str, ToolEntry] = {}  # the tools of the program by name, in the order in which they are listed


def _tool(description: str, writes: bool = False) -> Callable[[Method], Method]:
    """Offer a method as the tool of its name; `description`: what an agent is told about it."""

    def register(method: Method) -> Method:
        TOOLS[method.__name__] = ToolEntry(get_type_hints(method)["asked"], method, description, writes)
        return method

    return register


class Answerer:
    """Answer questions about traces in some `folders`. Not for several threads at once.

    Every method takes the question of a tool and returns at most `max_tokens` of text. Raises UsageError, and the
    errors that `is_expected` knows.
    """

    def __init__(self, folders: Sequence[str]) -> None:
        self.folders = AllowedFolders(folders)
        self._traces = OpenTraces(self.folders)

    def close(self) -> None:
        self._traces.close_all()

    def _ask(
        self, trace: str, make: partial[AnyOptions], build: Callable[[OpenTrace, AnyOptions], Fields]
    ) -> tuple[OpenTrace, Fields, str]:
        """Open a trace; also return the document of a command about it, and the command line that prints it."""
        opened = self._traces.open(trace)
        options, command = build_options(partial(make.func, trace=opened.specs, **make.keywords))
        return opened, opened.recall(options, build), command

    @_tool(
        "What a trace holds and what limits it: verdict, steps, devices, busiest kernels, what was not recorded. "
        "Without a trace: which traces can be asked about."
    )
    def overview(self, asked: asks.OverviewQuestion) -> str:
        if asked.trace is None:
            return self._list_traces(asked)
        _, info, info_command = self._ask(asked.trace, partial(InfoOptions, json=True), ask_info)
        _, check, check_command = self._ask(asked.trace, partial(CheckOptions, json=True), ask_check)
        make = partial(TableOptions, of="kernels", limit=5, json=True)
        opened, kernels, kernels_command = self._ask(asked.trace, make, ask_table)
        fired = [found for found in check["patterns"] if found["state"] == "fired"]
        answer = {
            "commands": [info_command, check_command, kernels_command],
            "verdict": _summarize_verdict(check["verdict"]),
            **{key: info[key] for key in _OVERVIEW_KEYS if info.get(key) is not None},
            **_list_undecided(check),
            "fired": [_select(found, ("id", "severity", "share")) for found in fired],
            "kernels": pack_records(list_rows_with_events(opened, None, kernels["rows"])),
            "not_recorded": [remark["kind"] for remark in info["doctor"] if remark["section"] == "not recorded"],
            "partial": check["partial"],
            "communication": [each["summary"] for each in info["communication"]],
            **_summarize_ranks(check),
        }
        if kernels.get("cannot_tell"):
            answer["kernels"] = {"cannot_tell": kernels["cannot_tell"]}
        return _write(answer, asked, "overview has more with a larger max_tokens; findings and table have details")

    @_tool(
        "What is slow, why, and how to fix it: patterns that fired with evidence, idle time by cause, the longest "
        "gaps, and what cannot be told."
    )
    def findings(self, asked: asks.FindingsQuestion) -> str:
        _, check, command = self._ask(asked.trace, partial(CheckOptions, range=asked.range, json=True), ask_check)
        if asked.pattern is not None:
            patterns = [*check["patterns"], *check["notes"]]
            found = next((each for each in patterns if each["id"] == asked.pattern), None)
            if found is None:
                known = ", ".join(each["id"] for each in patterns)
                raise UsageError(f"pattern {asked.pattern!r}: there is none of that name; there are {known}")
            whole = {**found, "evidence": _pack_events(found["evidence"])}
            return _write({"command": command, "scope": check["scope"], **whole}, asked, _MORE)
        gap_keys = ("start_ns", "duration_ns", "cause", "line", "next_event")
        fired = [
            {key: found[key] for key in _FINDING_KEYS if found.get(key) not in (None, "")}
            | {"evidence": _pack_events(found["evidence"][:MAX_EVIDENCE])}
            for found in check["patterns"]
            if found["state"] == "fired"
        ]
        answer: Fields = {
            "command": command,
            "scope": check["scope"],
            "verdict": _summarize_verdict(check["verdict"]),
            "causes": pack_records([_select(cause, ("cause", "us", "share")) for cause in check["verdict"]["causes"]]),
            **_list_undecided(check),
            "partial": check["partial"],
            "fired": fired,
            "gaps": pack_records([_select(gap, gap_keys) for gap in check["gaps"]]),
            "notes": [each["id"] for each in check["notes"] if each["state"] == "fired"],
            "not_found": [each["id"] for each in check["patterns"] if each["state"] not in ("fired", "cannot_tell")],
            **_summarize_ranks(check),
        }
        return _write(answer, asked, "findings with pattern=ID has all about one; or a larger max_tokens")

    @_tool("The profiler's table of calls (as key_averages()), of kernels, copies, collectives, or of late ranks.")
    def table(self, asked: asks.TableQuestion) -> str:
        sort = asked.sort
        if sort is None and asked.of == "calls":
            has_gpu = self._traces.open(asked.trace).trace.links.gpu_events
            sort = "self_gpu" if has_gpu else "gpu" if asked.by == "class" else "self_cpu"
        by = asked.by if asked.of == "calls" or asked.by != "name" else None
        filters = asked.name or None
        make = partial(
            TableOptions, of=asked.of, by=by, step=asked.step, rank=asked.rank, sort=sort, filter=filters,
            limit=asked.limit, json=True,
        )  # fmt: skip
        more = "ask with name=TEXT, a smaller limit, or a larger max_tokens"
        return self._write_table(asked, make, more, has_events=asked.of != "arrivals")

    def _write_table(
        self,
        asked: asks.TableQuestion | asks.RepetitionsQuestion | asks.MemoryQuestion,
        make: partial[TableOptions],
        more: str,
        has_events: bool = True,
    ) -> str:
        opened, table, command = self._ask(asked.trace, make, ask_table)
        rows = list_rows_with_events(opened, asked.rank, table["rows"]) if has_events else table["rows"]
        return _write({"command": command, **_without(table, "schema", "rows"), **pack_records(rows)}, asked, more)

    @_tool(
        "What repeats in the order of the kernels, without any marks in the trace: tokens, iterations, layers; their "
        "count, time and regularity."
    )
    def repetitions(self, asked: asks.RepetitionsQuestion) -> str:
        make = partial(TableOptions, of="repetitions", rank=asked.rank, limit=asked.limit, json=True)
        return self._write_table(asked, make, _FEWER_ROWS, has_events=False)

    @_tool("The way of one event from the step over ops and the launch to its kernel: delays, source line, occupancy.")
    def chain(self, asked: asks.ChainQuestion) -> str:
        opened = self._traces.open(asked.trace)
        if (asked.event is None) == (asked.row is None):
            raise UsageError("chain needs either event (a name) or row")
        event, nth, rank = asked.event or "", asked.nth, asked.rank
        if asked.row is not None:
            if asked.row >= len(opened.trace):
                raise UsageError(f"row {asked.row}: {opened.spec} has {len(opened.trace):,} events")
            of = opened.trace.rank_of_event(asked.row)
            place = find_place_in_time(of.trace, asked.row - of.first)
            event, nth, rank = place.event, place.nth, of.number if of.is_merged else None
        make = partial(ChainOptions, event=event, nth=nth, rank=rank, json=True)
        _, fields, command = self._ask(asked.trace, make, ask_chain)
        work = {**fields["gpu_work"], "heaviest": _pack_events(fields["gpu_work"]["heaviest"])}
        packed = {"chain": _pack_events(fields["chain"]), "gpu_work": work}
        return _write({"command": command, **_without(fields, "schema"), **packed}, asked, _MORE)

    @_tool(
        "What changed from trace a to trace b, part by part of a step (up to the start of the next), and whether "
        "that is more than noise."
    )
    def diff(self, asked: asks.DiffQuestion) -> str:
        a, b = self._traces.open(asked.a), self._traces.open(asked.b)
        options, command = build_options(
            partial(DiffOptions, a=a.spec, b=b.spec, by=asked.by, steps=asked.steps, rank=asked.rank, json=True)
        )
        by_spec = {side.spec: side.trace for side in (a, b)}

        def build(*_: object) -> Fields:
            comparison = load_comparison(options, lambda spec: by_spec[spec])
            fields = as_fields(build_diff(comparison, asked.by))
            for side, opened in (("a", a), ("b", b)):
                if opened.trace.merged_ranks is None:  # of several ranks one is compared
                    names = [row.get(f"name_{side}") or "" for row in fields["ops"]]
                    longest = find_longest_events(opened.trace, names)
                    for row, name in zip(fields["ops"], names, strict=True):
                        row[f"longest_row_{side}"] = longest.get(name)
            return fields

        fields = a.recall((options, b.identity), build)
        answer = {
            "command": command,
            **{key: fields[key] for key in _DIFF_KEYS if key in fields},
            "parts": pack_records(fields["parts"]),
            **({"rows": pack_records(_order_by_change(fields["rows"]))} if "rows" in fields else {}),
            "ops": pack_records(_order_by_change(fields["ops"])),
            "ops_total": fields["ops_total"],
        }
        return _write(answer, asked, "ask with by=kernel, module, class or cause, or a larger max_tokens")

    @_tool(
        "How long a step would take with some changes (faster kernels, no .item(), a CUDA graph), and what limits "
        "it then. Check replay_error first: predictions of a step whose replay is off are not to be trusted."
    )
    def what_if(self, asked: asks.WhatIfQuestion) -> str:
        make = partial(WhatIfOptions, set=tuple(asked.changes), step=asked.step, rank=asked.rank, json=True)

        def build(opened: OpenTrace, options: WhatIfOptions) -> Fields:
            return as_fields(build_what_if(*predict(opened.trace, options.set, options.step, options.rank)))

        _, fields, command = self._ask(asked.trace, make, build)
        return _write(_pack_lists(command, fields, ("path",)), asked, _MORE)

    @_tool(
        "The longest chain of dependencies of a step: its time by kind (dispatch, launch, kernels, waiting for a "
        "rank), the events with most time on it, and how much later the work off it could end. Only a shorter path "
        "makes the step shorter. Check replay_error, missing and advice first."
    )
    def critical_path(self, asked: asks.CriticalPathQuestion) -> str:
        make = partial(
            CriticalPathOptions, step=asked.step, range=asked.range, rank=asked.rank, top=asked.limit, json=True
        )
        _, fields, command = self._ask(asked.trace, make, ask_critical_path)
        return _write(_pack_lists(command, fields, _PATH_LISTS), asked, _FEWER_ROWS)

    @_tool("What is allocated at the peak or at another time, by category, op, module or line; what could be saved.")
    def memory_at(self, asked: asks.MemoryAtQuestion) -> str:
        make = partial(
            MemoryOptions, at=asked.at, by=asked.by, device=asked.device, rank=asked.rank, top=asked.limit, json=True
        )
        _, fields, command = self._ask(asked.trace, make, ask_memory_at)
        return _write(_pack_lists(command, fields, _MEMORY_LISTS), asked, _FEWER_ROWS)

    @_tool("Allocations by operator, and the peak of each device.")
    def memory(self, asked: asks.MemoryQuestion) -> str:
        make = partial(TableOptions, of="memory", step=asked.step, rank=asked.rank, limit=asked.limit, json=True)
        return self._write_table(asked, make, _FEWER_ROWS)

    @_tool("The stacks, modules or ops with the most self GPU or CPU time.")
    def flame(self, asked: asks.FlameQuestion) -> str:
        scope = partial(ExportOptions, format="folded", by=asked.by, time=asked.time)
        make = partial(scope, range=asked.range, step=asked.step, rank=asked.rank, limit=asked.limit)
        _, fields, command = self._ask(asked.trace, make, ask_flame)
        outer, stacks = split_common_frames(fields["stacks"])
        answer = {"command": command, **_without(fields, "stacks"), "outer_frames": outer, **pack_records(stacks)}
        return _write(answer, asked, "ask with by=op or module, a range or a step, or a larger max_tokens")

    @_tool(
        "Write a time range as a smaller trace file in a folder of this server; nothing is overwritten.", writes=True
    )
    def slice(self, asked: asks.SliceQuestion) -> str:
        opened = self._traces.open(asked.trace)
        times = parse_time_range(asked.range)
        trace, _ = select_rank(opened.trace, asked.rank)
        output = self.folders.find_output(asked.output, OUTPUT_SUFFIXES)
        sliced = write_new_slice(trace, times, output)
        fields = as_fields(build_slice(trace, str(output), sliced))
        make = partial(SliceOptions, trace=opened.specs, range=asked.range, output=str(output), rank=asked.rank)
        return _write({"command": build_options(make)[1], **fields}, asked, _MORE)

    @_tool("The program's screen as text, after some keys.")
    def snapshot(self, asked: asks.SnapshotQuestion) -> str:
        opened = self._traces.open(asked.trace)
        path = self.folders.find_trace(asked.trace).path
        keys, screen = take_screen(path, asked.view, asked.keys, asked.size)
        make = partial(SnapshotOptions, trace=opened.specs, size=asked.size, keys=keys, output="screen.txt")
        _, command = build_options(make)
        lines = [f"command: {command}", *map(clean, screen.splitlines())]
        limit = asked.max_tokens * asks.CHARACTERS_PER_TOKEN
        total = len(lines) - 1
        while len("\n".join(lines)) > limit and len(lines) > 2:
            kept = len(lines) - 2 if lines[-1].startswith("cut: ") else len(lines) - 1
            lines = [*lines[:kept], f"cut: {kept - 1} of {total} lines; ask with a smaller size or a larger max_tokens"]
        return "\n".join(lines)[:limit]

    def _list_traces(self, asked: asks.OverviewQuestion) -> str:
        found = [{"trace": path, "bytes": size} for path, size in self.folders.list_traces()]
        answer = {
            "folders": self.folders.description,
            "traces": pack_records(found[:MAX_LISTED_TRACES]),
            "trace_count": len(found),
            "samples": list_samples(),
        }
        return _write(answer, asked, "start the server with a narrower folder, or ask with a larger max_tokens")


def build_options(make: partial[AnyOptions]) -> tuple[AnyOptions, str]:
    """Build the options of a command, and the command line that gives them in the same order. Raises UsageError."""
    options = make()
    words: list[str] = []
    for name in make.keywords:
        argument, value = options.arguments[name], getattr(options, name)
        flag = argument.format_flag(name, value)
        if value is None or value in ("", ()):
            continue
        if argument.is_positional:
            words += value if argument.is_list else [value]
        elif value is True or argument.flags_help is not None:
            words.append(flag)
        else:
            words += [f"{flag}={each}" for each in (value if argument.is_list else [value])]
    return options, " ".join([PROGRAM, options.get_command(), *map(_quote, words)])


def _quote(word: str) -> str:
    """Quote a word for a shell; control characters, which no answer may hold, by their numbers (bash, zsh, ksh)."""
    if clean(word) == word:
        return shlex.quote(word)
    kept = ""
    for char in word:
        is_plain = clean(char) == char and char not in "'\\"
        kept += char if is_plain else "".join(f"\\x{byte:02x}" for byte in char.encode("utf-8", "surrogatepass"))
    return f"$'{kept}'"


def _pack_lists(command: str, fields: Fields, names: Sequence[str]) -> Fields:
    packed = {name: pack_records(fields[name]) for name in names if name in fields}
    return {"command": command, **_without(fields, "schema"), **packed}


def _write(answer: Fields, asked: asks.Question, more: str) -> str:
    full_names = getattr(asked, "full_names", True)
    return write_bounded(clean_values(answer, full_names), asked.max_tokens, more)


def _select(fields: Fields, names: Sequence[str]) -> Fields:
    return {name: fields[name] for name in names}


def _without(fields: Fields, *names: str) -> Fields:
    return {name: value for name, value in fields.items() if name not in names}


def _summarize_verdict(verdict: Fields) -> Fields:
    return {
        key: value for key, value in verdict.items() if key not in ("causes", "what", "action") and value is not None
    }


def _summarize_ranks(check: Fields) -> Fields:
    """Return the verdict of each rank; {} where there is one trace."""
    ranks = [{"rank": each["rank"], **_summarize_verdict(each["verdict"])} for each in check.get("ranks") or ()]
    return {"ranks": ranks} if ranks else {}


def _pack_events(events: list[Fields]) -> Fields:
    return pack_records([{"row": each.get("event"), **_without(each, "event")} for each in events])


def _list_undecided(check: Fields) -> Fields:
    """List the patterns that cannot be checked, by reason; never left out."""
    by_reason: dict[str, list[str]] = {}
    for found in check["patterns"]:
        if found["state"] == "cannot_tell":
            by_reason.setdefault(found["reason"], []).append(found["id"])
    return {"cannot_tell": [{"reason": reason, "patterns": " ".join(ids)} for reason, ids in by_reason.items()]}


def _order_by_change(rows: list[Fields]) -> list[Fields]:
    return sorted(rows, key=lambda row: -abs(row["delta_us"]))


def write_new_slice(trace: Trace, times: tuple[int, int], output: Path) -> SliceResult:
    """Write a range of a trace, ns. The name is taken first, so that no file of another program is replaced."""
    try:
        os.close(os.open(output, os.O_CREAT | os.O_EXCL | os.O_WRONLY | getattr(os, "O_NOFOLLOW", 0), 0o666))
    except FileExistsError:
        raise UsageError(f"output: {output}: exists; nothing is overwritten, choose another name") from None
    try:
        return write_slice(trace, *times, output)
    except BaseException as error:
        output.unlink(missing_ok=True)
        if isinstance(error, OutputError | SliceError | LookupError):
            raise UsageError(f"slice: {error.args[0] if error.args else error}") from error
        raise


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
    order = np.argsort(-tree.value_ns[nodes], kind="stable")[: options.limit].tolist()
    rows = tree.first_event[nodes].tolist()
    first = 0 if rank is None else rank.first
    return {
        "by": tree.fold_by.value,
        "time": tree.time.value,
        "total_ns": tree.total,
        "without_frames_ns": tree.missing_ns,
        "stack_count": len(lines),
        "stacks": [
            {
                "self_ns": int(lines[index].rpartition(" ")[2]),
                "stack": lines[index].rpartition(" ")[0],
                "row": rows[index] + first if rows[index] >= 0 else None,
                "start_ns": int(trace.start[rows[index]]) if rows[index] >= 0 else None,
            }
            for index in order
        ],
        "partial": _list_losses(asked),
    }


def name_rows(answers: list[Fields]) -> None:
    """Name the number of an event `row`, as all tools do."""
    for answer in answers:
        answer["row"] = answer.pop("event", None)


def _list_losses(asked: OpenTrace) -> list[Fields]:
    return [as_fields(problem) for problem in build_losses(asked.trace)]


MAX_NAMES = 1000  # names that are looked up for one answer: each reads the column of names


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


VIEW_KEYS = {"lanes": [], "cheatsheet": ["c"], "tree": ["T"], "flame": ["F"], "table": ["t"]}
VIEW_KEYS["doctor"] = ["colon", *"doctor", "enter"]

_KEYS = (
    "w a s d W S f 0 home end left right up down } { p u pageup pagedown m z tab shift+tab i l k c v x b T F "
    "J K n N t 1 2 3 4 5 6 7 8 9 space"
)
ALLOWED_KEYS = frozenset(_KEYS.split())
"""Keys that move about. Left out are those that open another trace or a source file, record, write or copy."""

_TEXTUAL_NAMES = {"{": "left_curly_bracket", "}": "right_curly_bracket"}
MAX_KEYS = 60
MAX_CELLS = 240 * 60
SECONDS = 60


def take_screen(path: str, view: str, keys: str, size: str) -> tuple[str, str]:
    """Return the keys as `snapshot` takes them, and the screen that they lead to. Raises UsageError.

    In a process of its own: the app needs a terminal's environment, and stdout is taken.
    """
    columns, _, lines = size.partition("x")
    if int(columns) * int(lines) > MAX_CELLS:
        raise UsageError(f"size {size}: at most 240x60")
    pressed = [key for key in keys.replace(" ", "").split(",") if key]
    for key in pressed:
        if key not in ALLOWED_KEYS:
            raise UsageError(f"keys: {key!r} is not one of the keys that move about: {' '.join(sorted(ALLOWED_KEYS))}")
    if len(pressed) > MAX_KEYS:
        raise UsageError(f"keys: at most {MAX_KEYS}")
    named = ",".join(_TEXTUAL_NAMES.get(key, key) for key in (*VIEW_KEYS[view], *pressed))
    with tempfile.TemporaryDirectory(prefix="torchprof-tui-") as folder:
        out = Path(folder, "screen.txt")
        words = ["snapshot", path, f"--size={size}", f"--keys={named}", f"--output={out}"]
        command = [sys.executable, "-m", "torchprof_tui", *words]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(os.path.abspath, filter(None, sys.path)))}
        try:
            # In the new folder: `python -m` imports from the working folder first, which may hold anybody's files.
            done = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=SECONDS,
                env=environment,
                cwd=folder,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise UsageError(f"the screen was not drawn within {SECONDS} s") from None
        if done.returncode or not out.exists():
            said = done.stderr.strip().splitlines() or ["no screen was drawn"]
            raise UsageError(said[-1].removeprefix("torchprof-tui: "))
        return named, out.read_text(encoding="utf-8")
