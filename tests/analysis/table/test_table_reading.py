"""The sentence under a profiler's table, and what is said of a row, compared with the raw file and the verdict."""

from __future__ import annotations

import gzip
import json
import re

import pytest

import torchprof_samples
from tests.helpers.long_run import keep_some
from torchprof_tui.analysis.patterns.engine.check_scope import default_scope, step_scope
from torchprof_tui.analysis.patterns.engine.checker import Checker
from torchprof_tui.analysis.patterns.engine.scope_view import format_percent
from torchprof_tui.analysis.patterns.verdict.check_report import check_trace
from torchprof_tui.analysis.patterns.verdict.verdict import Regime, Verdict
from torchprof_tui.analysis.table import table_reading
from torchprof_tui.analysis.table.groups import Profile
from torchprof_tui.analysis.table.profiler_table import GroupBy
from torchprof_tui.analysis.table.sheets import CallTotals, Sheet
from torchprof_tui.analysis.table.table_sheet import build_calls_sheet
from torchprof_tui.commands.common.load import load_specs
from torchprof_tui.trace.core.time_format import format_duration
from torchprof_tui.trace.model.trace import Step, Trace

NAMES = [sample.name for sample in torchprof_samples.SAMPLES]
UNKNOWN = re.compile(r"what limits is not known")


def load(name: str) -> Trace:
    return load_specs([f"sample:{name}"], cache=False).trace


def build(trace: Trace, step: Step | None = None) -> Sheet:
    return build_calls_sheet(Profile(trace), GroupBy.NAME, step, False)


def test_the_sums_are_those_of_the_file() -> None:
    path = torchprof_samples.find("article_64_cold").path
    events = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
    gpu = sum(event["dur"] for event in events if event.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset"))
    calls = [
        event for event in events if event.get("cat") in ("cpu_op", "cuda_runtime", "user_annotation", "cuda_driver")
    ]
    calls = [event for event in calls if event["tid"] == calls[0]["tid"]]
    outermost = [
        each
        for each in calls
        if not any(
            other is not each
            and other["ts"] <= each["ts"]
            and each["ts"] + each["dur"] <= other["ts"] + other["dur"]
            and other["dur"] > each["dur"]
            for other in calls
        )
    ]
    waits = sum(event["dur"] for event in calls if event["name"].endswith("Synchronize"))
    cpu = sum(event["dur"] for event in outermost) - waits
    sentence = build(load("article_64_cold")).reading
    assert (
        f"self CPU without waits {format_duration(cpu * 1000)} : self GPU {format_duration(gpu * 1000)} = " in sentence
    )
    assert f" = {cpu / gpu:.0f} : 1, GPU busy 1.8 % of the steps: " in sentence
    assert sentence.endswith("overhead-bound, the CPU dispatches")


@pytest.mark.parametrize("name", keep_some(NAMES, 2))
def test_the_sentence_says_the_regime_of_the_verdict(name: str) -> None:
    """Of the whole trace, as `check` does it (with the other ranks at hand), and of each step."""
    trace = load(name)
    verdicts = check_trace(trace, default_scope(trace), with_wins=False).verdicts
    for rank, verdict in zip(trace.all_ranks, verdicts, strict=True):
        assert_agrees(build(rank.trace), verdict)
        checker = Checker(rank.trace)
        for step in rank.trace.steps[:4]:
            assert_agrees(build(rank.trace, step), checker.decide_verdict(step_scope(step)))


def assert_agrees(sheet: Sheet, verdict: Verdict) -> None:
    sentence = sheet.reading
    if not sentence:
        assert isinstance(sheet.sums, CallTotals)
        assert not sheet.sums.self_cpu or not sheet.sums.self_gpu
        return
    said = {regime for regime in Regime if f": {regime.value}, " in sentence}
    if verdict.busy is None:
        assert "busy" not in sentence
    elif verdict.regime is Regime.UNKNOWN:
        assert not said
        assert UNKNOWN.search(sentence)
    else:
        assert said == {verdict.regime}
        assert f"GPU busy {format_percent(verdict.busy)}" in sentence


def test_the_same_ratio_reads_differently_where_the_gpu_is_busy() -> None:
    """The sample that was called undecided by the ratio of sums, while its verdict was compute-bound."""
    sentence = build(load("article_4096_active20")).reading
    assert re.search(r"= 1\.\d : 1, GPU busy 8\d % of the steps: compute-bound, the GPU limits$", sentence)


def test_rows_are_described_by_their_own_numbers() -> None:
    sheet = build(load("infer_resnet"))
    rows = {name: row for row, name in enumerate(sheet.columns["name"])}
    said = {name: table_reading.describe_row(sheet, row) for name, row in rows.items()}
    assert said["aten::cudnn_convolution"] == "hotspot: 53% of the GPU's self time"
    assert re.fullmatch(r"cost in its children: self is \d+% of its CPU total", said["aten::conv2d"])
    assert said["classify"] == ""  # an annotation
    assert said["aten::add"] == ""
