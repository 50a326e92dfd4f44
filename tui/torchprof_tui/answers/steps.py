"""The steps of a trace. Imports little: the Python API lists the steps of a trace that is not analysed."""

from __future__ import annotations

from typing import Annotated

from torchprof_tui.answers.record import Record, about, fill
from torchprof_tui.trace.model.steps import UNKNOWN, StepKind
from torchprof_tui.trace.model.trace import Trace


class Step(Record, frozen=True, kw_only=True):
    """One step of the program."""

    name: Annotated[str, about("as recorded: ProfilerStep#3")]
    start_ns: Annotated[int, about("from the trace's first event")]
    duration_ns: Annotated[int, about("on the CPU")]
    kind: Annotated[StepKind | None, about("of a step of a serving engine; null for others")]
    batch: Annotated[int | None, about("requests served; null if not recorded")]
    tokens: Annotated[int | None, about("computed; null if not recorded")]
    kv_length: Annotated[int | None, about("tokens in the KV cache, over all requests; null if not recorded")]
    number: Annotated[int, about("N of ProfilerStep#N, or of the step of a serving engine")]
    event: Annotated[int, about("number of the event in the trace, from 0")]
    rank: Annotated[int | None, about("rank; only with several")] = None


def list_steps(trace: Trace) -> list[Step]:
    """List the steps by time, of several ranks one rank after the other."""
    steps = []
    for rank in trace.all_ranks:
        number = None if trace.merged_ranks is None else rank.number
        for step in rank.steps:
            served = step.serving
            numbers = (UNKNOWN,) * 3 if served is None else (served.batch, served.tokens, served.kv_length)
            batch, tokens, kv_length = (None if each == UNKNOWN else each for each in numbers)
            kind = None if served is None else served.kind
            steps.append(fill(Step, step, kind=kind, batch=batch, tokens=tokens, kv_length=kv_length, rank=number))
    return steps
