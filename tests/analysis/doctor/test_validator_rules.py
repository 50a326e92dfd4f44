"""Every rule of torch's own validator is covered by a remark: a literal trace that violates it, and one that does not.

Where torch 2.14 or later is installed its validator is the oracle, on these traces and on the samples.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.long_run import keep_some
from torchprof_tui.analysis.doctor.examination import diagnose_trace
from torchprof_tui.trace.build.build_trace import build_trace
from torchprof_tui.trace.decode.general_decoder import decode_trace
from torchprof_tui.trace.model.trace import Trace
from torchprof_tui.trace.sources.source import open_source

Entry = dict[str, Any]

REMARKS = {
    "_check_gpu_kernel_causality": {"kernel before its launch"},
    "_check_stream_wait_corr_id_populated": {"wait without its record"},
    "_check_stream_sync_overlap": {"synchronised stream still busy"},
    "_check_stream_wait_corr_id_in_past": {"record of a wait not found", "wait before its record"},
    "_check_nccl_metadata": {"collective without its data"},
    "_check_backward_seq_id_uniqueness": {"sequence number of several ops"},
}
"""The remarks that cover each rule."""


def call(name: str, ts: float, correlation: int) -> Entry:
    args = {"correlation": correlation, "External id": correlation}
    return {"ph": "X", "cat": "cuda_runtime", "name": name, "pid": 1, "tid": 1, "ts": ts, "dur": 2.0, "args": args}


def kernel(ts: float, dur: float = 10.0, correlation: int = 5, stream: int = 7) -> Entry:
    args = {"device": 0, "stream": stream, "correlation": correlation, "External id": correlation}
    return {"ph": "X", "cat": "kernel", "name": "gemm", "pid": 0, "tid": stream, "ts": ts, "dur": dur, "args": args}


def sync(kind: str, ts: float, stream: int = 7, **args: Any) -> Entry:
    usual = {"cuda_sync_kind": kind, "device": 0, "stream": stream, "correlation": 900}
    entry = {"ph": "X", "cat": "cuda_sync", "name": kind, "pid": 0, "tid": stream, "ts": ts, "dur": 1.0}
    return {**entry, "args": {**usual, **args}}


def wait(ts: float, record: int | None, kind: str = "Stream Wait Event") -> Entry:
    return sync(kind, ts, **({} if record is None else {"wait_on_cuda_event_record_corr_id": record}))


def op(name: str, ts: float, **args: Any) -> Entry:
    return {"ph": "X", "cat": "cpu_op", "name": name, "pid": 1, "tid": 1, "ts": ts, "dur": 2.0, "args": args}


COMPLETE = {"Collective name": "a", "dtype": "b", "In msg nelems": 1, "Out msg nelems": 1, "Group size": 2}
BACKWARD = "autograd::engine::evaluate_function: "

VIOLATIONS: dict[str, tuple[str, list[Entry], int]] = {
    "early kernel": ("kernel before its launch", [call("cudaLaunchKernel", 20, 5), kernel(10)], 1),
    "wait, no record": ("wait without its record", [wait(5, None), wait(9, -1, "Event Sync")], 2),
    "sync inside a kernel": ("synchronised stream still busy", [kernel(10), sync("Stream Sync", 15)], 1),
    "record later": ("wait before its record", [call("cudaEventRecord", 30, 6), wait(10, 6)], 1),
    "record missing": ("record of a wait not found", [call("cudaLaunchKernel", 1, 6), wait(10, 6)], 1),
    "collective": ("collective without its data", [op("record_param_comms", 5, dtype="Float")], 1),
    "sequence": (
        "sequence number of several ops",
        [op(f"{BACKWARD}AddBackward0", 5, **{"Sequence number": 4}), op(f"{BACKWARD}Mul", 9, **{"Sequence number": 4})],
        1,
    ),
}

CLEAN: dict[str, list[Entry]] = {
    "kernel after its launch": [call("cudaLaunchKernel", 5, 5), kernel(10)],
    "record earlier": [call("cudaEventRecordWithFlags", 5, 6), wait(10, 6), wait(10, 6, "Event Sync")],
    "sync of another stream": [kernel(10), sync("Stream Sync", 15, stream=8)],
    "sync at the end of a kernel": [kernel(10), sync("Stream Sync", 20), sync("Stream Sync", 10)],
    "complete collective": [op("record_param_comms", 5, **COMPLETE)],
    "one name": [op(f"{BACKWARD}AddBackward0", ts, **{"Sequence number": 4}) for ts in (5, 9)],
    "sequence number 0": [op(f"{BACKWARD}{name}", 5, **{"Sequence number": 0}) for name in "ab"],
}


def read_trace(folder: Path, entries: list[Entry]) -> tuple[Trace, Path]:
    path = folder / "x.json"
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": entries}))
    return build_trace(decode_trace(open_source(str(path)), folder), "x"), path


def covering_remarks(trace: Trace) -> dict[str, int]:
    covering = set().union(*REMARKS.values())
    return {remark.kind: remark.count for remark in diagnose_trace(trace).remarks if remark.kind in covering}


@pytest.mark.parametrize("name", sorted(VIOLATIONS))
def test_each_rule_is_covered(tmp_path: Path, name: str) -> None:
    kind, entries, count = VIOLATIONS[name]
    trace, _ = read_trace(tmp_path, entries)
    assert covering_remarks(trace) == {kind: count}
    remark = next(remark for remark in diagnose_trace(trace).remarks if remark.kind == kind)
    assert remark.event >= 0
    assert remark.meaning
    assert remark.example


@pytest.mark.parametrize("name", sorted(CLEAN))
def test_what_keeps_the_rules_has_no_remark(tmp_path: Path, name: str) -> None:
    trace, _ = read_trace(tmp_path, CLEAN[name])
    assert covering_remarks(trace) == {}


def test_the_missing_data_of_collectives_are_named(tmp_path: Path) -> None:
    trace, _ = read_trace(tmp_path, [op("record_param_comms", 5 * k, dtype="Float") for k in range(500)])
    remark = next(r for r in diagnose_trace(trace).remarks if r.kind == "collective without its data")
    assert "Collective name, In msg nelems, Out msg nelems, Group size, of 200 that were looked at" in remark.meaning
    assert remark.count == 200


def test_the_longest_violation_is_the_example(tmp_path: Path) -> None:
    trace, _ = read_trace(tmp_path, [kernel(10), sync("Stream Sync", 18), sync("Stream Sync", 12)])
    remark = next(r for r in diagnose_trace(trace).remarks if r.kind == "synchronised stream still busy")
    assert "8.00 µs before the kernel ends" in remark.example
    assert int(trace.start[remark.event]) + trace.origin == int(trace.origin) + 2000


def test_text_of_names_is_escaped(tmp_path: Path) -> None:
    names = [f"{BACKWARD}\x1b[31mA", f"{BACKWARD}B"]
    trace, _ = read_trace(tmp_path, [op(name, 5, **{"Sequence number": 4}) for name in names])
    assert all(
        "\x1b" not in repr(remark.example) or "\\x1b" in remark.example for remark in diagnose_trace(trace).remarks
    )
    assert not any("\x1b" in remark.example for remark in diagnose_trace(trace).remarks)


@pytest.mark.torch
@pytest.mark.parametrize("name", keep_some(sorted({**VIOLATIONS, **CLEAN}), 2))
def test_the_validator_of_torch_agrees(tmp_path: Path, name: str) -> None:
    validator = pytest.importorskip("torch.profiler._trace_validator", reason="torch 2.14 or later has it")
    entries = VIOLATIONS[name][1] if name in VIOLATIONS else CLEAN[name]
    trace, path = read_trace(tmp_path, entries)
    violated = {violation.rule_name for violation in validator.validate_trace(str(path))[1]}
    remarks = set(covering_remarks(trace))
    assert violated == {rule for rule, kinds in REMARKS.items() if kinds & remarks}
