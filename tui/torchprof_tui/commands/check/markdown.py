"""Format a check as Markdown, for a ticket: verdict, causes, problems, numbers, the command that repeats it."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from statistics import median

import msgspec

from torchprof_tui.analysis.patterns.engine.pattern import describe_code_line, find_code_location
from torchprof_tui.analysis.patterns.verdict.check_report import CheckReport
from torchprof_tui.analysis.patterns.verdict.tree_model import OUTSIDE, TimePart, TimeTree
from torchprof_tui.answers.serving import list_serving
from torchprof_tui.commands.check.text import (
    describe_device,
    describe_gap_times,
    format_rank_prefix,
    format_scope_times,
    select_shown_gaps,
)
from torchprof_tui.commands.common.serving_text import COLUMNS, format_kind, list_remarks
from torchprof_tui.trace.core.printable import clean
from torchprof_tui.trace.core.time_format import format_duration
from torchprof_tui.ui.common.labels import describe_cost, list_reasons
from torchprof_tui.ui.common.number_format import format_share

CAUSE_COUNT = 3  # causes that a report lists; the rest is one row

_MARKUP = re.compile(r"([\\`*_{}\[\]#!|~$])")
_LINE_START = re.compile(r"^([-+]|[0-9]+[.)]|=+)(?=\s|$)")
_LINK = re.compile(r":(?=//)|(?<=www)\.")
_REFERENCE = re.compile(r"([@#])(?=\w)")
_WORD_JOINER = "\u2060"  # invisible; keeps `@name` and `#12` from notifying a person or linking an issue


def format_report(report: CheckReport, specs: Sequence[str], time_range: str | None) -> str:
    """Format a report. `specs`, `time_range`: what the user gave on the command line, to repeat it."""
    words = ["torchprof-tui", "check", *specs, *(["--range", time_range] if time_range is not None else [])]
    parts = [
        *_verdict_lines(report),
        *_cause_lines(report),
        *_gap_lines(report),
        *_serving_lines(report),
        *_problem_lines(report),
        *("## Numbers", "", "| | |", "|---|---|"),
        *(f"| {name} | {escape_markdown(value)} |" for name, value in _list_numbers(report)),
        *("", "## Repeat it", ""),
        *_fence(clean(shlex.join([*words, "--markdown"])), "sh"),
    ]
    return "\n".join(parts)


def escape_markdown(text: str) -> str:
    """Escape text from a trace: one line that no Markdown or HTML reader takes for markup, a link or a mention."""
    escaped = _MARKUP.sub(r"\\\1", clean(text))
    escaped = escaped.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    escaped = _REFERENCE.sub(rf"\1{_WORD_JOINER}", escaped)
    escaped = _LINK.sub(lambda match: f"&#{ord(match[0])};", escaped)
    return _LINE_START.sub(lambda match: f"{match[1][:-1]}&#{ord(match[1][-1])};", escaped)


def _verdict_lines(report: CheckReport) -> Iterator[str]:
    where = format_scope_times(report.scope)
    name = report.trace.label.rstrip("/").rpartition("/")[2] or report.trace.label
    yield from (f"# {escape_markdown(name)}{', ' if where else ''}{where}", "")
    for text, why, verdict, ranks in report.ranks_by_verdict:
        yield from (f"**{format_rank_prefix(ranks)}{escape_markdown(text)}**", "")
        details = [escape_markdown(why)] if why else []
        if verdict.recording_fault:
            details.append(f"Not representative: {escape_markdown(verdict.recording_fault)}")
        if location := describe_code_line(verdict):
            details.append(f"{'Code' if find_code_location(verdict) else 'Event'}: {escape_markdown(location)}")
        for detail in details:
            yield from (detail, "")


def _cause_lines(report: CheckReport) -> Iterator[str]:
    tree = report.tree
    if tree is None:
        return
    yield from ("## Where the time goes", "")
    yield from (f"| share | time{tree.mean_note}{tree.outside_note} | cause | part of it |", "|---:|---:|---|---|")
    causes = sorted((part for part in tree.parts if part.id != OUTSIDE), key=lambda part: -part.time)
    for part in causes[:CAUSE_COUNT]:
        yield _cause_row(tree, part.time, part.label, part.parts)
    if rest := sum(part.time for part in causes[CAUSE_COUNT:]):
        yield _cause_row(tree, rest, "everything else", ())
    yield ""


def _cause_row(tree: TimeTree, time: int, label: str, inside: Sequence[TimePart]) -> str:
    largest = sorted(inside, key=lambda part: -part.time)[:CAUSE_COUNT]
    listed = ", ".join(f"{escape_markdown(part.id)} {format_share(part.time / tree.measured)}" for part in largest)
    share = format_share(time / tree.measured)
    return f"| {share} | {format_duration(time / tree.device_count)} | {escape_markdown(label)} | {listed} |"


def _gap_lines(report: CheckReport) -> Iterator[str]:
    gaps = select_shown_gaps(report)
    if not gaps:
        return
    yield from ("## Largest gaps of the GPU", "")
    yield from ("| share | time | at | cause | place | code |", "|---:|---:|---:|---|---|---|")
    for gap in gaps:
        start, duration, share = describe_gap_times(report, gap)
        device = describe_device(report, gap)
        cause = f"{device}: {gap.label}" if device else gap.label
        texts = (cause, gap.place, gap.line.text if gap.line else "")
        yield f"| {share} | {duration} | {start} | {' | '.join(map(escape_markdown, texts))} |"
    yield ""


def _serving_lines(report: CheckReport) -> Iterator[str]:
    for record in list_serving(report.trace, report.serving_range):
        serving = msgspec.to_builtins(record)
        if not serving["steps"]:
            continue
        rank = f" of rank {serving['rank']}" if "rank" in serving else ""
        yield from (f"## Serving steps{rank}", "")
        yield from (f"| kind | {' | '.join(COLUMNS)} |", f"|---|{'---:|' * len(COLUMNS)}")
        for kind in serving["kinds"]:
            yield f"| {kind['kind']} | {' | '.join(map(escape_markdown, format_kind(kind)))} |"
        yield from ("", *(f"- {escape_markdown(line)}" for line in list_remarks(serving)), "")


def _problem_lines(report: CheckReport) -> Iterator[str]:
    yield from (f"## Problems ({len(report.problems)})", "")
    if not report.problems:
        yield from ("None that costs two percent of the time or more.", "")
        return
    yield from (f"Shares of {report.base.describe()}.", "")
    if report.wins.problem:
        yield from (f"What fixes save is not known: {escape_markdown(report.wins.problem)}.", "")
    for number, found in enumerate(report.problems, 1):
        title = f"{escape_markdown(found.pattern.title)} (`{found.id}`)"
        yield f"{number}. **{title}: {describe_cost(found, report.base)}.** {escape_markdown(found.answer.seen)}"
        yield from ("", *(f"   - {word}: {escape_markdown(text)}" for word, text in list_reasons(found)), "")
        if location := describe_code_line(found):
            label = "Code" if find_code_location(found) else "Event"  # an event's name is no code
            yield from (f"   {label}: {escape_markdown(location)}", "")
        if found.remedy.code:
            yield from (f"   {line}".rstrip() for line in _fence(found.remedy.code, "python"))


def _list_numbers(report: CheckReport) -> list[tuple[str, str]]:
    """List what a reader asks first: (name, value). What the trace does not record is stated as such."""
    trace = report.trace
    ranks = trace.all_ranks
    metadata = ranks[0].trace.metadata
    devices = sorted({device.name for rank in ranks for device in rank.trace.devices} - {""})
    steps = [step.duration for rank in ranks for step in rank.trace.steps]
    busy = [verdict.busy for verdict in report.verdicts if verdict.busy is not None]
    shares = map(format_share, (min(busy), max(busy)) if len(busy) > 1 else busy)
    cuda = metadata.cuda_version  # 1000 · major + 10 · minor (cudaRuntimeGetVersion)
    version = "" if cuda is None else f", CUDA {cuda // 1000}.{cuda % 1000 // 10}"
    numbers = [
        ("trace", trace.label),
        ("GPU", ", ".join(devices) or "not recorded"),
        ("torch", (metadata.torch_version or "not recorded") + version),
        ("steps", f"{len(steps)}, {format_duration(median(steps))} in the median" if steps else "none recorded"),
        ("checked duration", format_duration(report.scope.length)),
        ("GPU busy", f"{' to '.join(shares)} of {report.verdicts[0].busy_base}" if busy else "not recorded"),
        ("patterns", report.format_counts()),
    ]
    if trace.merged_ranks is not None:
        numbers.insert(1, ("ranks", str(len(ranks))))
    return numbers


def _fence(code: str, language: str) -> list[str]:
    """Fence code with more backticks than it contains in a row."""
    longest = max((len(run) for run in re.findall("`+", code)), default=0)
    fence = "`" * max(3, longest + 1)
    return [f"{fence}{language}", *map(clean, code.split("\n")), fence, ""]
