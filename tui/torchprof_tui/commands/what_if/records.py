"""The records of `what-if --json`."""

from __future__ import annotations

from typing import Annotated

from torchprof_tui.commands.common.json_document import Document, Record, about
from torchprof_tui.commands.common.partial_input import ProblemRecord


class ScenarioRecord(Record, frozen=True, kw_only=True):
    """One change by itself."""

    set: Annotated[str, about("as given")]
    after_us: Annotated[float, about("step time with this change alone")]
    speedup: Annotated[float | None, about("before_us / after_us; null where nothing is left")]


class PathRecord(Record, frozen=True, kw_only=True):
    """Time of one kind on the new critical path."""

    kind: Annotated[str, about('dispatch, launch, host code, "kernel: gemm", collective, GPU queue, …')]
    resource: Annotated[str, about("CPU dispatch, GPU compute, memory copies, communication, input or waiting")]
    us: Annotated[float, about("on the path")]
    share: Annotated[float, about("of the path")]


class WhatIfDocument(Document, frozen=True, kw_only=True, tag="torchprof-tui/what-if/1"):
    """How long a step would take with some changes."""

    step: Annotated[str | None, about("name of the step; null: the whole recording")]
    ranks: Annotated[list[int], about("ranks that were replayed together; [] for a trace without a rank")]
    duration_us: Annotated[float, about("the recorded step until its last GPU work has ended")]
    replay_us: Annotated[float, about("the same, as the unchanged dependency graph predicts it")]
    replay_error: Annotated[float, about("(replay_us - duration_us) / duration_us")]
    trusted: Annotated[bool, about("whether the error is at most 5 %")]
    before_us: Annotated[float, about("step time, unchanged: from one step to the next in a loop of such steps")]
    after_us: Annotated[float, about("step time with all changes")]
    alone_us: Annotated[float, about("the changed step until its last GPU work has ended")]
    speedup: Annotated[float | None, about("before_us / after_us; null where nothing is left")]
    limit: Annotated[str | None, about("the resource with most of the new critical path")]
    bottleneck: Annotated[str | None, about("the kind with most of the new critical path: what to change next")]
    rank: Annotated[int | None, about("the rank that decides the new step time; null for one process")]
    scenarios: Annotated[list[ScenarioRecord], about("each change by itself")]
    path: Annotated[list[PathRecord], about("the new critical path by kind, longest first")]
    partial: Annotated[list[ProblemRecord], about("what was lost of the whole trace; [] for nothing")]
