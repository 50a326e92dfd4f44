"""Answer each tool's question: the documents of the commands, the parts that help first."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from torchprof_tui.analysis.slicing.slice_writer import OUTPUT_SUFFIXES, SliceError, SliceResult, write_slice
from torchprof_tui.answers.diff import build_diff
from torchprof_tui.answers.files import build_slice
from torchprof_tui.answers.record import as_fields
from torchprof_tui.commands.chain.options import ChainOptions
from torchprof_tui.commands.check.options import CheckOptions
from torchprof_tui.commands.common.errors import UsageError
from torchprof_tui.commands.common.load import select_rank
from torchprof_tui.commands.common.options import Options, parse_time_range
from torchprof_tui.commands.critical_path.options import CriticalPathOptions
from torchprof_tui.commands.diff.options import DiffOptions
from torchprof_tui.commands.diff.sides import load_comparison
from torchprof_tui.commands.export.options import ExportOptions
from torchprof_tui.commands.info.options import InfoOptions
from torchprof_tui.commands.mcp import documents
from torchprof_tui.commands.mcp import questions as asks
from torchprof_tui.commands.mcp.allowed_folders import AllowedFolders, list_samples
from torchprof_tui.commands.mcp.bounded_text import clean_values, pack_records, split_common_frames, write_bounded
from torchprof_tui.commands.mcp.open_traces import OpenTraces
from torchprof_tui.commands.mcp.screen_text import take_screen
from torchprof_tui.commands.memory.options import MemoryOptions
from torchprof_tui.commands.slice.options import SliceOptions
from torchprof_tui.commands.snapshot.options import SnapshotOptions
from torchprof_tui.commands.table.options import TableOptions
from torchprof_tui.commands.what_if.options import WhatIfOptions
from torchprof_tui.trace.core.atomic_file import OutputError
from torchprof_tui.trace.core.printable import clean
from torchprof_tui.trace.model.trace import Trace

Fields = dict[str, Any]
AnyOptions = TypeVar("AnyOptions", bound=Options)
Given = ParamSpec("Given")

PROGRAM = "torchprof-tui"
MAX_EVIDENCE = 3
MAX_LISTED_TRACES = 200
_OVERVIEW_KEYS = ("format", "bytes", "events", "duration_ns", "steps", "devices", "gpu_busy_ns", "rank", "world_size")
_FINDING_KEYS = (
    "id",
    "severity",
    "seen",
    "at_stake_us",
    "share",
    "won_share",
    "own_us",
    "action",
    "line",
    "evidence_count",
)
_DIFF_KEYS = (
    "a",
    "b",
    "same_recording",
    "comparable",
    "step_us",
    "verdict",
    "ranks",
    "divided",
    "launches",
    "gpu_work",
)
_PATH_LISTS = ("segments", "ranks", "rank_changes", "events", "off_path")
_MEMORY_LISTS = ("groups", "alive", "before_window")
_FEWER_ROWS = "ask with a smaller limit or a larger max_tokens"


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

    def overview(self, asked: asks.OverviewQuestion) -> str:
        if asked.trace is None:
            return self._list_traces(asked)
        opened = self._traces.open(asked.trace)
        of_trace, info_command = build_options(InfoOptions, trace=opened.specs, json=True)
        of_check, check_command = build_options(CheckOptions, trace=opened.specs, json=True)
        of_kernels, kernels_command = build_options(TableOptions, trace=opened.specs, of="kernels", limit=5, json=True)
        info = opened.recall(of_trace, documents.ask_info)
        check = opened.recall(of_check, documents.ask_check)
        kernels = opened.recall(of_kernels, documents.ask_table)
        answer = {
            "commands": [info_command, check_command, kernels_command],
            "verdict": _summarize_verdict(check["verdict"]),
            **{key: info[key] for key in _OVERVIEW_KEYS if info.get(key) is not None},
            **_list_undecided(check),
            "fired": [
                {key: found[key] for key in ("id", "severity", "share")}
                for found in check["patterns"]
                if found["state"] == "fired"
            ],
            "kernels": pack_records(documents.list_rows_with_events(opened, None, kernels["rows"])),
            "not_recorded": [remark["kind"] for remark in info["doctor"] if remark["section"] == "not recorded"],
            "partial": check["partial"],
            "communication": [each["summary"] for each in info["communication"]],
        }
        if check.get("ranks"):
            answer["ranks"] = [{"rank": each["rank"], **_summarize_verdict(each["verdict"])} for each in check["ranks"]]
        if kernels.get("cannot_tell"):
            answer["kernels"] = {"cannot_tell": kernels["cannot_tell"]}
        return _write(answer, asked, "overview has more with a larger max_tokens; findings and table have details")

    def findings(self, asked: asks.FindingsQuestion) -> str:
        opened = self._traces.open(asked.trace)
        options, command = build_options(CheckOptions, trace=opened.specs, range=asked.range, json=True)
        check = opened.recall(options, documents.ask_check)
        if asked.pattern is not None:
            patterns = [*check["patterns"], *check["notes"]]
            found = next((each for each in patterns if each["id"] == asked.pattern), None)
            if found is None:
                known = ", ".join(each["id"] for each in patterns)
                raise UsageError(f"pattern {asked.pattern!r}: there is none of that name; there are {known}")
            whole = {**found, "evidence": _pack_events(found["evidence"])}
            return _write({"command": command, "scope": check["scope"], **whole}, asked, "ask with a larger max_tokens")
        answer: Fields = {
            "command": command,
            "scope": check["scope"],
            "verdict": _summarize_verdict(check["verdict"]),
            "causes": pack_records([{key: cause[key] for key in ("cause", "us", "share")} for cause in _causes(check)]),
            **_list_undecided(check),
            "partial": check["partial"],
            "fired": [_summarize_finding(found) for found in check["patterns"] if found["state"] == "fired"],
            "gaps": pack_records(
                [
                    {key: gap[key] for key in ("start_ns", "duration_ns", "cause", "line", "next_event")}
                    for gap in check["gaps"]
                ]
            ),
            "notes": [each["id"] for each in check["notes"] if each["state"] == "fired"],
            "not_found": [each["id"] for each in check["patterns"] if each["state"] not in ("fired", "cannot_tell")],
        }
        if check.get("ranks"):
            answer["ranks"] = [{"rank": each["rank"], **_summarize_verdict(each["verdict"])} for each in check["ranks"]]
        return _write(answer, asked, "findings with pattern=ID has all about one; or a larger max_tokens")

    def table(self, asked: asks.TableQuestion) -> str:
        opened = self._traces.open(asked.trace)
        sort = asked.sort
        if sort is None and asked.of == "calls":
            sort = "self_gpu" if opened.trace.links.gpu_events else "gpu" if asked.by == "class" else "self_cpu"
        options, command = build_options(
            TableOptions,
            trace=opened.specs,
            of=asked.of,
            by=asked.by if asked.of == "calls" or asked.by != "name" else None,
            step=asked.step,
            rank=asked.rank,
            sort=sort,
            limit=asked.limit if asked.name is None and asked.of != "calls" else None,
            json=True,
        )
        table = opened.recall(options, documents.ask_table)
        rows = table["rows"]
        answer = {"command": command, **_without(table, "schema", "rows")}
        if asked.name is not None:
            rows = [row for row in rows if asked.name.lower() in row["name"].lower()]
            answer["rows_of_that_name"] = len(rows)
        if asked.sort is None:  # annotations contain the work of other rows
            rows = sorted(rows, key=lambda row: bool(row.get("annotation")))
        rows = rows[: asked.limit]
        if asked.of != "arrivals":
            rows = documents.list_rows_with_events(opened, asked.rank, rows)
        answer |= pack_records(rows)
        return _write(answer, asked, "ask with name=TEXT, a smaller limit, or a larger max_tokens")

    def memory(self, asked: asks.MemoryQuestion) -> str:
        opened = self._traces.open(asked.trace)
        options, command = build_options(
            TableOptions,
            trace=opened.specs,
            of="memory",
            step=asked.step,
            rank=asked.rank,
            limit=asked.limit,
            json=True,
        )
        table = opened.recall(options, documents.ask_table)
        answer = {"command": command, **_without(table, "schema", "rows")}
        answer |= pack_records(documents.list_rows_with_events(opened, asked.rank, table["rows"]))
        return _write(answer, asked, _FEWER_ROWS)

    def what_if(self, asked: asks.WhatIfQuestion) -> str:
        opened = self._traces.open(asked.trace)
        options, command = build_options(
            WhatIfOptions, trace=opened.specs, set=tuple(asked.changes), step=asked.step, rank=asked.rank, json=True
        )
        fields = opened.recall(options, documents.ask_what_if)
        answer = {"command": command, **_without(fields, "schema"), "path": pack_records(fields["path"])}
        return _write(answer, asked, "ask with a larger max_tokens")

    def critical_path(self, asked: asks.CriticalPathQuestion) -> str:
        opened = self._traces.open(asked.trace)
        options, command = build_options(
            CriticalPathOptions,
            trace=opened.specs,
            step=asked.step,
            range=asked.range,
            rank=asked.rank,
            top=asked.limit,
            json=True,
        )
        fields = opened.recall(options, documents.ask_critical_path)
        return _write(_pack_lists(command, fields, _PATH_LISTS), asked, _FEWER_ROWS)

    def memory_at(self, asked: asks.MemoryAtQuestion) -> str:
        opened = self._traces.open(asked.trace)
        options, command = build_options(
            MemoryOptions,
            trace=opened.specs,
            at=asked.at,
            by=asked.by,
            device=asked.device,
            rank=asked.rank,
            top=asked.limit,
            json=True,
        )
        fields = opened.recall(options, documents.ask_memory_at)
        return _write(_pack_lists(command, fields, _MEMORY_LISTS), asked, _FEWER_ROWS)

    def chain(self, asked: asks.ChainQuestion) -> str:
        opened = self._traces.open(asked.trace)
        if (asked.event is None) == (asked.row is None):
            raise UsageError("chain needs either event (a name) or row")
        event, nth, rank = asked.event, asked.nth, asked.rank
        if asked.row is not None:
            event, nth, rank = documents.name_event(opened, asked.row)
        options, command = build_options(
            ChainOptions, trace=opened.specs, event=event or "", nth=nth, rank=rank, json=True
        )
        fields = opened.recall(options, documents.ask_chain)
        work = {**fields["gpu_work"], "heaviest": _pack_events(fields["gpu_work"]["heaviest"])}
        answer = {
            "command": command,
            **_without(fields, "schema"),
            "chain": _pack_events(fields["chain"]),
            "gpu_work": work,
        }
        return _write(answer, asked, "ask with a larger max_tokens")

    def diff(self, asked: asks.DiffQuestion) -> str:
        sides = {"a": self._traces.open(asked.a), "b": self._traces.open(asked.b)}
        a, b = sides["a"], sides["b"]
        options, command = build_options(
            DiffOptions, a=a.spec, b=b.spec, by=asked.by, steps=asked.steps, rank=asked.rank, json=True
        )
        by_spec = {side.spec: side.trace for side in sides.values()}

        def build(*_: object) -> Fields:
            comparison = load_comparison(options, lambda spec: by_spec[spec])
            fields = as_fields(build_diff(comparison, asked.by))
            documents.add_diff_rows(fields, a, b)
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

    def flame(self, asked: asks.FlameQuestion) -> str:
        opened = self._traces.open(asked.trace)
        options, command = build_options(
            ExportOptions,
            trace=opened.specs,
            format="folded",
            by=asked.by,
            time=asked.time,
            range=asked.range,
            step=asked.step,
            rank=asked.rank,
        )
        fields = opened.recall(options, documents.ask_flame)
        outer, stacks = split_common_frames(fields["stacks"][: asked.limit])
        answer = {"command": command, **_without(fields, "stacks"), "outer_frames": outer, **pack_records(stacks)}
        return _write(answer, asked, "ask with by=op or module, a range or a step, or a larger max_tokens")

    def slice(self, asked: asks.SliceQuestion) -> str:
        opened = self._traces.open(asked.trace)
        times = parse_time_range(asked.range)
        trace, _ = select_rank(opened.trace, asked.rank)
        output = self.folders.find_output(asked.output, OUTPUT_SUFFIXES)
        sliced = write_new_slice(trace, times, output)
        fields = as_fields(build_slice(trace, str(output), sliced))
        _, command = build_options(
            SliceOptions, trace=opened.specs, range=asked.range, output=str(output), rank=asked.rank
        )
        return _write({"command": command, **fields}, asked, "ask with a larger max_tokens")

    def snapshot(self, asked: asks.SnapshotQuestion) -> str:
        opened = self._traces.open(asked.trace)
        path = self.folders.find_trace(asked.trace).path
        keys, screen = take_screen(path, asked.view, asked.keys, asked.size)
        _, command = build_options(SnapshotOptions, trace=opened.specs, size=asked.size, keys=keys, output="screen.txt")
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


def build_options(
    make: Callable[Given, AnyOptions], *args: Given.args, **named: Given.kwargs
) -> tuple[AnyOptions, str]:
    """Build the options of a command, and the command line that gives them in the same order. Raises UsageError."""
    options = make(*args, **named)
    words: list[str] = []
    for name in named:
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
    return options, format_command(options.get_command(), words)


def _pack_lists(command: str, fields: Fields, names: Sequence[str]) -> Fields:
    """Return an answer: the fields of a document, its lists of records as tables."""
    packed = {name: pack_records(fields[name]) for name in names if name in fields}
    return {"command": command, **_without(fields, "schema"), **packed}


def format_command(command: str, words: Sequence[str]) -> str:
    """Format the command line that repeats an answer."""
    return clean(f"{PROGRAM} {command} {shlex.join(words)}")


def _write(answer: Fields, asked: asks.Question, more: str) -> str:
    return write_bounded(clean_values(answer), asked.max_tokens, more)


def _without(fields: Fields, *names: str) -> Fields:
    return {name: value for name, value in fields.items() if name not in names}


def _causes(check: Fields) -> list[Fields]:
    causes: list[Fields] = check["verdict"]["causes"]
    return causes


def _summarize_verdict(verdict: Fields) -> Fields:
    return {
        key: value for key, value in verdict.items() if key not in ("causes", "what", "action") and value is not None
    }


def _summarize_finding(found: Fields) -> Fields:
    told = {key: found[key] for key in _FINDING_KEYS if found.get(key) not in (None, "")}
    return {**told, "evidence": _pack_events(found["evidence"][:MAX_EVIDENCE])}


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
