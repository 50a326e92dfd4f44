"""Declare the arguments of each tool, from which the schemas that agents read are generated."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

DEFAULT_TOKENS = 2000
MIN_TOKENS = 200
MAX_TOKENS = 50_000
CHARACTERS_PER_TOKEN = 4  # how tokens are estimated: characters of the answer by this

DEFAULT_ROWS = 15

TracePath = Annotated[str, Meta(description="path of a trace, or of the folder of one run's ranks; or sample:NAME")]
RankNumber = Annotated[int | None, Meta(description="of several ranks this one (default: the first)")]
StepNumber = Annotated[int | None, Meta(description="only what ProfilerStep#N did and launched")]
TimeRange = Annotated[str | None, Meta(description="only this time: 12.5ms:30ms; a bare number is µs")]
RowLimit = Annotated[int, Meta(ge=1, le=1000, description="rows at most")]


class Question(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What every tool takes."""

    max_tokens: Annotated[
        int, Meta(ge=MIN_TOKENS, le=MAX_TOKENS, description="longest answer, in tokens of 4 characters")
    ] = DEFAULT_TOKENS


class NamesQuestion(Question, frozen=True, kw_only=True):
    """What every tool takes whose answers name kernels."""

    full_names: Annotated[
        bool, Meta(description="kernels by their full names, with all template arguments; default: short, as on screen")
    ] = False


class TraceQuestion(NamesQuestion, frozen=True, kw_only=True):
    """What tools take that are about one trace."""

    trace: TracePath


class OverviewQuestion(NamesQuestion, frozen=True, kw_only=True):
    trace: Annotated[str | None, Meta(description="as in the other tools; without it: which traces there are")] = None


class FindingsQuestion(TraceQuestion, frozen=True, kw_only=True):
    pattern: Annotated[str | None, Meta(description="id of one pattern: all that is known about it")] = None
    range: TimeRange = None


class TableQuestion(TraceQuestion, frozen=True, kw_only=True):
    of: Annotated[
        Literal["calls", "kernels", "copies", "collectives", "arrivals"],
        Meta(description="calls: as key_averages(); arrivals: which rank was late at each collective"),
    ] = "calls"
    by: Annotated[
        Literal["name", "shape", "stack", "module", "class", "step", "step-kind"],
        Meta(description="what calls are grouped by; step-kind: prefill, decode, mixed steps of a serving engine"),
    ] = "name"
    sort: Annotated[
        str | None, Meta(description="column: self_gpu, gpu, self_cpu, cpu, calls, total … (default: longest first)")
    ] = None
    name: Annotated[
        str | None, Meta(description="only rows that contain this text, or match /a regular expression/")
    ] = None
    step: StepNumber = None
    rank: RankNumber = None
    limit: RowLimit = DEFAULT_ROWS


class RepetitionsQuestion(TraceQuestion, frozen=True, kw_only=True):
    rank: RankNumber = None
    limit: RowLimit = DEFAULT_ROWS


class ChainQuestion(TraceQuestion, frozen=True, kw_only=True):
    event: Annotated[str | None, Meta(description="name of the event, as recorded")] = None
    nth: Annotated[int, Meta(ge=0, description="which event of that name, by time from 0")] = 0
    row: Annotated[
        Annotated[int, Meta(ge=0)] | None, Meta(description="row of the event, as other answers give it")
    ] = None
    rank: RankNumber = None


class DiffQuestion(NamesQuestion, frozen=True, kw_only=True):
    a: Annotated[str, Meta(description="the trace before, as `trace` in the other tools")]
    b: Annotated[str, Meta(description="the trace after")]
    by: Annotated[
        Literal["op", "module", "kernel", "class", "cause"], Meta(description="what the rows of the table are")
    ] = "op"
    steps: Annotated[str | None, Meta(description="these steps: 3..7, or 3..7/8..12 for A and B")] = None
    rank: Annotated[str | None, Meta(description="of several ranks this one, or 0/3 for A and B")] = None


class WhatIfQuestion(TraceQuestion, frozen=True, kw_only=True):
    changes: Annotated[
        list[str],
        Meta(
            min_length=1,
            max_length=20,
            description="together: class=gemm*0.5, op=aten::mm*0.5, kernel=TEXT*0, event=ROW*0, cpu=0.5, sync=0, "
            "dataloader=0, launch=graph, compile, optimizer=fused, collectives=overlapped, late-rank=0, pattern=ID",
        ),
    ]
    step: Annotated[int | None, Meta(description="number of the step (default: the one of median duration)")] = None
    rank: Annotated[int | None, Meta(description="of several ranks only this one (default: all, joined)")] = None


class MemoryQuestion(TraceQuestion, frozen=True, kw_only=True):
    step: StepNumber = None
    rank: RankNumber = None
    limit: RowLimit = DEFAULT_ROWS


class MemoryAtQuestion(TraceQuestion, frozen=True, kw_only=True):
    at: Annotated[str, Meta(description="peak, end, or a time: 12.5ms, 300us")] = "peak"
    by: Annotated[
        Literal["category", "op", "module", "line", "phase", "shape"],
        Meta(description="what is grouped by; category: parameter, gradient, activation …"),
    ] = "category"
    device: Annotated[str | None, Meta(description="GPU0, GPU1, …, CPU (default: the GPU with the highest peak)")] = (
        None
    )
    rank: RankNumber = None
    limit: RowLimit = DEFAULT_ROWS


class CriticalPathQuestion(TraceQuestion, frozen=True, kw_only=True):
    step: Annotated[int | None, Meta(description="number of the step (default: the one of median duration)")] = None
    range: TimeRange = None
    rank: Annotated[int | None, Meta(description="of several ranks only this one (default: all, joined)")] = None
    limit: RowLimit = DEFAULT_ROWS


class FlameQuestion(TraceQuestion, frozen=True, kw_only=True):
    by: Annotated[Literal["stack", "module", "op"], Meta(description="what the frames are")] = "stack"
    time: Annotated[Literal["gpu", "cpu"] | None, Meta(description="self time to add up (default: GPU time)")] = None
    range: TimeRange = None
    step: StepNumber = None
    rank: RankNumber = None
    limit: RowLimit = DEFAULT_ROWS


class SliceQuestion(Question, frozen=True, kw_only=True):
    trace: TracePath
    range: Annotated[str, Meta(description="start and end: 12.5ms:30ms; a bare number is µs")]
    output: Annotated[str, Meta(description="new file, OUT.json or OUT.json.gz, in a folder of this server")]
    rank: RankNumber = None


class SnapshotQuestion(Question, frozen=True, kw_only=True):
    trace: TracePath
    view: Annotated[
        Literal["lanes", "cheatsheet", "doctor", "tree", "flame", "table"], Meta(description="what to show")
    ] = "lanes"
    keys: Annotated[str, Meta(description="then keys that move about, by Textual's names: w,w,right,down,f")] = ""
    size: Annotated[str, Meta(pattern=r"^[0-9]{2,3}x[0-9]{2,3}$", description="columns x lines, at most 240x60")] = (
        "120x40"
    )


def build_schema(question: type[Question]) -> dict[str, Any]:
    """Build the JSON schema of a tool's arguments."""
    _, parts = msgspec.json.schema_components([question])
    schema: dict[str, Any] = parts[question.__name__]
    schema.pop("description", None)
    return schema
