"""The serving steps of real traces against what a regular expression reads from the raw files."""

from __future__ import annotations

import gzip
import re
from pathlib import Path
from typing import Any

import orjson
import pytest

from tests.helpers.long_run import keep_some
from tests.helpers.paths import SHARED_TRACES
from torchprof_tui.analysis.serving.report import report_serving
from torchprof_tui.analysis.serving.serving_steps import KINDS, ServingReport
from torchprof_tui.trace.loading.load_in_process import load_opened_trace

_ANNOTATION = re.compile(r"execute_\d+_context_(\d+)\(sq(\d+)sk(\d+).*_generation_(\d+)\(sq(\d+)sk(\d+)")
_SGLANG = re.compile(r"step\[(EXTEND|DECODE) bs=(\d+)(?: toks=(\d+))?\]")

TRACES = sorted(
    path
    for folder in ("graphs/*", "public/AMD-AGI+TraceLens")
    for path in SHARED_TRACES.glob(f"{folder}/*.json.gz")
    if path.name.startswith(("graph_execution", "sglang"))
)
"""All traces of vLLM and SGLang in the shared folder, without those of captures."""


def read_events(path: Path) -> list[dict[str, Any]]:
    events: list[dict[str, Any]] = orjson.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
    return events


@pytest.mark.long
@pytest.mark.skipif(not SHARED_TRACES.exists(), reason="no shared traces")
def test_the_shared_folder_has_traces_of_both_engines() -> None:
    names = [event.get("name", "") for path in TRACES for event in read_events(path)]
    assert sum(_ANNOTATION.match(name) is not None for name in names) >= 5
    assert sum(_SGLANG.match(name) is not None for name in names) >= 3


@pytest.mark.parametrize("path", keep_some(TRACES, 1), ids=lambda path: f"{path.parent.name}/{path.name}")
def test_kinds_batches_and_times_are_those_of_the_annotations(path: Path) -> None:
    events = read_events(path)
    outer = [event for event in events if event.get("cat") == "user_annotation" and _ANNOTATION.match(event["name"])]
    inner = [event for event in events if event.get("cat") == "user_annotation" and _SGLANG.match(event["name"])]
    report = report_serving(load_opened_trace(str(path), cache=False).trace)
    steps = report.steps
    first = min(event["ts"] for event in events if event.get("ph") == "X")
    assert len(steps) == len(outer)
    for index, event in enumerate(outer):
        match = _ANNOTATION.match(event["name"])
        assert match is not None
        context, prefill, context_kv, generation, decode, generation_kv = map(int, match.groups())
        assert KINDS[steps.kind[index]].value == ("prefill" if context else "decode")
        assert steps.batch[index] == context + generation
        assert steps.tokens[index] == prefill + decode
        assert steps.kv_length[index] == context_kv + generation_kv
        assert abs(steps.start[index] - (event["ts"] - first) * 1000) <= 1000
        assert abs(steps.end[index] - steps.start[index] - event["dur"] * 1000) <= 1
    if inner:
        assert report.steps.engines == ("SGLang",)
        _compare_with_sglang(report, inner)
    _compare_kernels(report, events, outer)


def _compare_with_sglang(report: ServingReport, inner: list[dict[str, Any]]) -> None:
    """What SGLang's own annotation inside says is the same."""
    for index, event in enumerate(inner):
        match = _SGLANG.match(event["name"])
        assert match is not None
        assert KINDS[report.steps.kind[index]].value == {"EXTEND": "prefill", "DECODE": "decode"}[match[1]]
        assert report.steps.batch[index] == int(match[2])
        assert report.steps.tokens[index] == int(match[3] or match[2])


def _compare_kernels(report: ServingReport, events: list[dict[str, Any]], outer: list[dict[str, Any]]) -> None:
    """Kernels, their time, and those of graphs, joined with their launches by correlation in a plain loop."""
    launches = {
        event["args"]["correlation"]: event
        for event in events
        if event.get("cat") == "cuda_runtime" and "correlation" in event.get("args", {})
    }
    for index, step in enumerate(outer):
        kernels = graphed = time = 0.0
        for event in events:
            if event.get("cat") not in ("kernel", "gpu_memcpy", "gpu_memset"):
                continue
            launch = launches.get(event["args"].get("correlation"))
            if launch is None or not step["ts"] <= launch["ts"] < step["ts"] + step["dur"]:
                continue
            time += event["dur"]
            kernels += event["cat"] == "kernel"
            graphed += event["cat"] == "kernel" and "GraphLaunch" in launch["name"]
        steps = report.steps
        assert (steps.kernels[index], steps.graph_kernels[index]) == (kernels, graphed)
        assert steps.gpu_time[index] == pytest.approx(time * 1000, abs=len(events))


@pytest.mark.parametrize(
    "name", keep_some(["sglang_decode/sglang_Qwen3-8B_decode", "sglang_prefilldecode/sglang_Qwen3-8B_prefilldecode"], 1)
)
def test_all_layers_of_the_model_are_found(name: str) -> None:
    path = SHARED_TRACES / "graphs" / f"{name}.json.gz"
    if not path.exists():
        pytest.skip("no shared traces")
    layers = report_serving(load_opened_trace(str(path), cache=False).trace).layers
    assert layers is not None
    assert layers.name == "Qwen3DecoderLayer"
    assert layers.medians[0].tolist() == list(range(36))
