"""Recount the serving steps of real traces from their JSON, one event at a time, and compare with the summary."""

from __future__ import annotations

import gzip
import itertools
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.helpers.long_run import keep_some
from tests.helpers.paths import SHARED_TRACES
from torchprof_samples import find
from torchprof_tui.analysis.serving.report import report_serving
from torchprof_tui.trace.loading.load_in_process import load_trace

_EXECUTE = re.compile(r"execute_(\d+)_context_(\d+)\(sq\d+sk(\d+).*\)_generation_(\d+)\(sq\d+sk(\d+)")
_STEP = re.compile(r"step\[(PREFILL|EXTEND|DECODE) bs=(\d+)(?: toks=(\d+))?\]")
_WAIT = re.compile(r"(cuda|hip)((Device|Stream|Event)Synchronize|Memcpy(WithStream)?|Malloc|Free)$")

TRACES = [
    *sorted(SHARED_TRACES.glob("graphs/*/graph_execution.json.gz")),
    *sorted(SHARED_TRACES.glob("graphs/*/sglang*.json.gz")),
    *(Path(str(find(f"generate_{mode}").path)) for mode in ("eager", "compile", "graph")),
]

Event = dict[str, Any]
Interval = tuple[int, int]


@dataclass
class RecountedStep:
    """What one step says and did; times in ns from the first event."""

    kind: str
    batch: int
    tokens: int
    kv_length: int | None
    start: int
    end: int
    completion: int = 0
    step_time: int = 0
    cpu_time: int = 0
    gpu_time: int = 0
    lead_in: int = 0
    kernels: int = 0
    graph_kernels: int = 0


def unite(intervals: Iterable[Interval]) -> list[Interval]:
    united: list[Interval] = []
    for start, end in sorted(intervals):
        if united and start <= united[-1][1]:
            united[-1] = united[-1][0], max(united[-1][1], end)
        else:
            united.append((start, end))
    return united


def overlap(intervals: Iterable[Interval], start: int, end: int) -> int:
    return sum(max(0, min(last, end) - max(first, start)) for first, last in intervals)


def parse_step(name: str) -> tuple[str, int, int, int | None] | None:
    """Return (kind, batch, tokens, length of the KV cache)."""
    if match := _EXECUTE.match(name):
        tokens, prompts, prompt_kv, sequences, kv = map(int, match.groups())
        kind = "mixed" if prompts and sequences else "prefill" if prompts else "decode"
        return kind, prompts + sequences, tokens, prompt_kv + kv
    if match := _STEP.match(name):
        batch = int(match[2])
        return "decode" if match[1] == "DECODE" else "prefill", batch, int(match[3] or batch), None
    return None


class Recount:
    """The steps of a raw trace, and where its GPU worked."""

    def __init__(self, path: Path) -> None:
        raw = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
        self._events = [event for event in raw if event.get("ph") == "X" and event.get("cat") != "Trace"]
        self._first = min(event["ts"] for event in self._events)
        self._work = [event for event in self._events if event["cat"] in ("kernel", "gpu_memcpy", "gpu_memset")]
        self._calls = [event for event in self._events if event["cat"] in ("cuda_runtime", "cuda_driver")]
        self._launches = {call["args"]["correlation"]: call for call in self._calls}
        self.busy = unite(map(self.interval, self._work))
        named = [event for event in self._events if event["cat"] == "user_annotation" and parse_step(event["name"])]
        named.sort(key=lambda event: (event["ts"], -event["dur"]))
        self.steps: list[RecountedStep] = []
        for event in named:
            if not self.steps or self.interval(event)[0] >= self.steps[-1].end:
                self.steps.append(self._measure(event))

    def interval(self, event: Event) -> Interval:
        start = round((event["ts"] - self._first) * 1000)
        return start, start + round(event["dur"] * 1000)

    def _measure(self, event: Event) -> RecountedStep:
        said = parse_step(event["name"])
        assert said is not None
        step = RecountedStep(*said, *self.interval(event))
        own = [work for work in self._work if self._is_launched_in(work, step)]
        step.completion = max([step.end, *(self.interval(work)[1] for work in own)])
        waits = [
            self.interval(call) for call in self._calls if _WAIT.match(call["name"]) and call["tid"] == event["tid"]
        ]
        step.cpu_time = step.end - step.start - overlap(unite(waits), step.start, step.end)
        step.gpu_time = sum(end - start for start, end in map(self.interval, own))
        kernels = [work for work in own if work["cat"] == "kernel"]
        step.kernels = len(kernels)
        step.graph_kernels = sum("GraphLaunch" in self._launch(kernel)["name"] for kernel in kernels)
        begin = max([step.start, *(before.completion for before in self.steps)])
        if not self.steps and own:
            earliest = min(own, key=lambda work: float(work["ts"]))
            queued = self.interval(self._launch(earliest))[1], self.interval(earliest)[0]
            clipped = [(max(start, step.start), min(end, step.completion)) for start, end in waits]
            unrecorded = unite(pair for pair in [*clipped, queued] if pair[0] < pair[1])
            step.lead_in = sum(end - start - overlap(self.busy, start, end) for start, end in unrecorded)
        step.step_time = max(step.completion - begin - step.lead_in, 0)
        return step

    def _launch(self, work: Event) -> Event:
        launch: Event = self._launches[work["args"]["correlation"]]
        return launch

    def _is_launched_in(self, work: Event, step: RecountedStep) -> bool:
        launch = self._launches.get(work["args"].get("correlation"))
        return launch is not None and step.start <= self.interval(launch)[0] < step.end


@pytest.mark.parametrize("path", keep_some(TRACES, 1), ids=lambda path: path.name.partition(".")[0])
def test_summaries_equal_the_recount(path: Path) -> None:
    recount = Recount(path)
    report = report_serving(load_trace(str(path)))
    assert sum(kind.steps for kind in report.kinds) == len(recount.steps) > 0
    pairs = list(itertools.pairwise(recount.steps))
    gaps = [max(0, after.start - step.end) for step, after in pairs]
    pauses = [max(0, after.start - step.completion) for step, after in pairs]
    idle = [max(0, after.start - step.end) - overlap(recount.busy, step.end, after.start) for step, after in pairs]
    for kind in report.kinds:
        numbers = [number for number, step in enumerate(recount.steps) if step.kind == kind.kind.value]
        steps = [recount.steps[number] for number in numbers]
        with_gap = [number for number in numbers if number < len(gaps)]
        rounding = 4 * len(steps) + 2
        tokens, time = sum(step.tokens for step in steps), sum(step.step_time for step in steps)
        kernels, graphed = sum(step.kernels for step in steps), sum(step.graph_kernels for step in steps)
        assert (kind.steps, kind.tokens, kind.kernels) == (len(steps), tokens, kernels)
        assert kind.batch == np.median([step.batch for step in steps])
        known = [step.kv_length for step in steps if step.kv_length is not None]
        assert kind.kv_length == (np.median(known) if known else None)
        assert kind.graph_share == graphed / kernels
        assert sum(count for _, count in kind.not_graphed) == kernels - graphed
        for found, expected in (
            (kind.step_sum, time),
            (kind.step_p95, np.percentile([step.step_time for step in steps], 95)),
            (kind.token_p50, np.percentile([step.step_time / step.tokens for step in steps], 50)),
            (kind.lead_in, sum(step.lead_in for step in steps)),
            (kind.cpu_time, sum(step.cpu_time for step in steps)),
            (kind.gap_sum, sum(gaps[number] for number in with_gap)),
            (kind.gap_idle or 0, sum(idle[number] for number in with_gap)),
        ):
            assert found == pytest.approx(expected, abs=rounding)
        assert kind.gpu_time == pytest.approx(sum(step.gpu_time for step in steps), abs=kernels)
        assert kind.tokens_per_second == pytest.approx(tokens * 1e9 / time, rel=1e-5)
        whole = time + sum(pauses[number] for number in with_gap)
        assert kind.tokens_per_second_with_pauses == pytest.approx(tokens * 1e9 / whole, rel=1e-5)
