"""Answer each tool's question: the documents of the commands, the parts that help first."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Callable, Sequence
from typing import Any

from torchprof_tui.analysis.slicing.slice_writer import OUTPUT_SUFFIXES
from torchprof_tui.answers.diff import build_diff
from torchprof_tui.answers.files import build_slice
from torchprof_tui.answers.record import as_fields
from torchprof_tui.commands.common.errors import UsageError
from torchprof_tui.commands.common.load import select_rank
from torchprof_tui.commands.common.time_range import parse_time_range
from torchprof_tui.commands.diff.sides import load_comparison
from torchprof_tui.commands.mcp import documents
from torchprof_tui.commands.mcp import questions as asks
from torchprof_tui.commands.mcp.allowed_folders import AllowedFolders, list_samples
from torchprof_tui.commands.mcp.bounded_text import clean_values, write_bounded
from torchprof_tui.commands.mcp.compact_tables import pack_records, split_common_frames
from torchprof_tui.commands.mcp.new_files import write_new_slice
from torchprof_tui.commands.mcp.open_traces import OpenTrace, OpenTraces
from torchprof_tui.commands.mcp.screen_text import take_screen
from torchprof_tui.trace.core.printable import clean

Fields = dict[str, Any]
BuildParser = Callable[[str], argparse.ArgumentParser]

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

    def __init__(self, folders: Sequence[str], build_parser: BuildParser) -> None:
        self.folders = AllowedFolders(folders)
        self._traces = OpenTraces(self.folders)
        self._build_parser = build_parser

    def close(self) -> None:
        self._traces.close_all()

    def overview(self, asked: asks.OverviewQuestion) -> str:
        if asked.trace is None:
            return self._list_traces(asked)
        opened = self._traces.open(asked.trace)
        info, info_command = self._ask(opened, "info", [opened.spec], documents.ask_info)
        check, check_command = self._ask(opened, "check", [opened.spec], documents.ask_check)
        kernels, kernels_command = self._ask(
            opened, "table", [opened.spec, "--of=kernels", "--limit=5"], documents.ask_table
        )
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
        words = [opened.spec, *_option("range", asked.range)]
        check, command = self._ask(opened, "check", words, documents.ask_check)
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
        words = [opened.spec, f"--of={asked.of}"]
        words += [f"--by={asked.by}"] if asked.of == "calls" or asked.by != "name" else []
        words += [*_option("step", asked.step), *_option("rank", asked.rank)]
        sort = asked.sort
        if sort is None and asked.of == "calls":
            sort = "self_gpu" if opened.trace.links.gpu_events else "gpu" if asked.by == "class" else "self_cpu"
        words += _option("sort", sort)
        words += [f"--limit={asked.limit}"] if asked.name is None and asked.of != "calls" else []
        table, command = self._ask(opened, "table", words, documents.ask_table)
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
        words = [opened.spec, "--of=memory", *_option("step", asked.step), *_option("rank", asked.rank)]
        table, command = self._ask(opened, "table", [*words, f"--limit={asked.limit}"], documents.ask_table)
        answer = {"command": command, **_without(table, "schema", "rows")}
        answer |= pack_records(documents.list_rows_with_events(opened, asked.rank, table["rows"]))
        return _write(answer, asked, _FEWER_ROWS)

    def what_if(self, asked: asks.WhatIfQuestion) -> str:
        opened = self._traces.open(asked.trace)
        words = [opened.spec, *(f"--set={change}" for change in asked.changes)]
        words += [*_option("step", asked.step), *_option("rank", asked.rank)]
        fields, command = self._ask(opened, "what-if", words, documents.ask_what_if)
        answer = {"command": command, **_without(fields, "schema"), "path": pack_records(fields["path"])}
        return _write(answer, asked, "ask with a larger max_tokens")

    def critical_path(self, asked: asks.CriticalPathQuestion) -> str:
        opened = self._traces.open(asked.trace)
        words = [opened.spec, *_option("step", asked.step), *_option("range", asked.range)]
        words += [*_option("rank", asked.rank), f"--top={asked.limit}"]
        fields, command = self._ask(opened, "critical-path", words, documents.ask_critical_path)
        return _write(_pack_lists(command, fields, _PATH_LISTS), asked, _FEWER_ROWS)

    def memory_at(self, asked: asks.MemoryAtQuestion) -> str:
        opened = self._traces.open(asked.trace)
        words = [opened.spec, f"--at={asked.at}", f"--by={asked.by}", *_option("device", asked.device)]
        words += [*_option("rank", asked.rank), f"--top={asked.limit}"]
        fields, command = self._ask(opened, "memory", words, documents.ask_memory_at)
        return _write(_pack_lists(command, fields, _MEMORY_LISTS), asked, _FEWER_ROWS)

    def chain(self, asked: asks.ChainQuestion) -> str:
        opened = self._traces.open(asked.trace)
        if (asked.event is None) == (asked.row is None):
            raise UsageError("chain needs either event (a name) or row")
        event, nth, rank = asked.event, asked.nth, asked.rank
        if asked.row is not None:
            event, nth, rank = documents.name_event(opened, asked.row)
        words = [opened.spec, f"--event={event}", f"--nth={nth}", *_option("rank", rank)]
        fields, command = self._ask(opened, "chain", words, documents.ask_chain)
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
        words = [a.spec, b.spec, f"--by={asked.by}", *_option("steps", asked.steps), *_option("rank", asked.rank)]
        options = self._parse("diff", words)
        by_spec = {side.spec: side.trace for side in sides.values()}

        def build() -> Fields:
            comparison = load_comparison(options, lambda spec: by_spec[spec])
            fields = as_fields(build_diff(comparison, asked.by))
            documents.add_diff_rows(fields, a, b)
            return fields

        fields = a.recall(("diff", *words, str(b.identity)), build)
        answer = {
            "command": format_command("diff", [*words, "--json"]),
            **{key: fields[key] for key in _DIFF_KEYS if key in fields},
            "parts": pack_records(fields["parts"]),
            **({"rows": pack_records(_order_by_change(fields["rows"]))} if "rows" in fields else {}),
            "ops": pack_records(_order_by_change(fields["ops"])),
            "ops_total": fields["ops_total"],
        }
        return _write(answer, asked, "ask with by=kernel, module, class or cause, or a larger max_tokens")

    def flame(self, asked: asks.FlameQuestion) -> str:
        opened = self._traces.open(asked.trace)
        words = [opened.spec, "--folded", f"--by={asked.by}", *_option("time", asked.time)]
        words += [*_option("range", asked.range), *_option("step", asked.step), *_option("rank", asked.rank)]
        fields, command = self._ask(opened, "export", words, documents.ask_flame, as_json=False)
        outer, stacks = split_common_frames(fields["stacks"][: asked.limit])
        answer = {"command": command, **_without(fields, "stacks"), "outer_frames": outer, **pack_records(stacks)}
        return _write(answer, asked, "ask with by=op or module, a range or a step, or a larger max_tokens")

    def slice(self, asked: asks.SliceQuestion) -> str:
        opened = self._traces.open(asked.trace)
        words = [opened.spec, f"--range={asked.range}", f"--output={asked.output}", *_option("rank", asked.rank)]
        options = self._parse("slice", words)
        times = parse_time_range(options.range)
        trace, _ = select_rank(opened.trace, options.rank)
        output = self.folders.find_output(asked.output, OUTPUT_SUFFIXES)
        sliced = write_new_slice(trace, times, output)
        fields = as_fields(build_slice(trace, str(output), sliced))
        words[2] = f"--output={output}"
        return _write({"command": format_command("slice", words), **fields}, asked, "ask with a larger max_tokens")

    def snapshot(self, asked: asks.SnapshotQuestion) -> str:
        opened = self._traces.open(asked.trace)
        path = self.folders.find_trace(asked.trace).path
        words, screen = take_screen(path, asked.view, asked.keys, asked.size)
        command = format_command("snapshot", [opened.spec, *words, "--output=screen.txt"])
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

    def _parse(self, command: str, words: Sequence[str]) -> argparse.Namespace:
        return self._build_parser(command).parse_args(list(words))

    def _ask(
        self,
        opened: OpenTrace,
        command: str,
        words: Sequence[str],
        build: Callable[[OpenTrace, argparse.Namespace], Fields],
        as_json: bool = True,
    ) -> tuple[Fields, str]:
        """Return the document of a command about a trace, and the command line that repeats it."""
        options = self._parse(command, words)
        fields = opened.recall((command, *words), lambda: build(opened, options))
        return fields, format_command(command, [*words, "--json"] if as_json else words)


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


def _option(name: str, value: object) -> list[str]:
    return [] if value is None else [f"--{name}={value}"]


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
