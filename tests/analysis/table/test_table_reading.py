"""The sentence under a profiler's table, and what is said of a row, compared with the raw file and the verdict."""

from __future__ import annotations

import gzip
import json
import re

import pytest

import torchprof_samples
from torchprof_tui.analysis.patterns.engine.checker import Checker
from torchprof_tui.analysis.patterns.engine.thresholds import HOTSPOT_SHARE
from torchprof_tui.analysis.patterns.verdict.verdict import Regime
from torchprof_tui.analysis.table import table_reading
from torchprof_tui.analysis.table.groups import Profile
from torchprof_tui.analysis.table.profiler_table import GroupBy
from torchprof_tui.analysis.table.sheets import Sheet
from torchprof_tui.analysis.table.table_sheet import build_table_sheet
from torchprof_tui.trace.core.time_format import format_duration
from torchprof_tui.trace.loading.load_in_process import load_trace

ONE_RANK = [sample.name for sample in torchprof_samples.SAMPLES if sample.path.is_file()]


def build(name: str) -> Sheet:
    profile = Profile(load_trace(str(torchprof_samples.find(name).path), cache=False))
    return build_table_sheet(profile.build_table(GroupBy.NAME, None), profile.calls, None)


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
    sentence = build("article_64_cold").reading
    assert f"CPU {format_duration(cpu * 1000)} : GPU {format_duration(gpu * 1000)} = {cpu / gpu:.0f} : 1" in sentence
    assert sentence.endswith("the CPU dispatches: overhead-bound")


@pytest.mark.parametrize("name", ONE_RANK)
def test_the_sentence_never_contradicts_the_verdict(name: str) -> None:
    trace = load_trace(str(torchprof_samples.find(name).path), cache=False)
    sentence = build(name).reading
    regime = Checker(trace).decide_verdict().regime
    if sentence.endswith("dispatches: overhead-bound"):
        assert regime in (Regime.OVERHEAD, Regime.MIXED)
    if sentence.endswith("the GPU limits"):
        assert regime not in (Regime.OVERHEAD, Regime.INPUT)


def test_rows_are_described_by_their_own_numbers() -> None:
    sheet = build("infer_resnet")
    rows = {name: row for row, name in enumerate(sheet.columns["name"])}
    said = {name: table_reading.describe_row(sheet, row) for name, row in rows.items()}
    assert said["aten::cudnn_convolution"] == "hotspot: 53% of the GPU's self time"
    assert re.fullmatch(r"cost in its children: self is \d+% of its CPU total", said["aten::conv2d"])
    assert said["classify"] == ""  # an annotation
    assert said["aten::add"] == ""
    assert HOTSPOT_SHARE.value == table_reading.HOTSPOT_SHARE
