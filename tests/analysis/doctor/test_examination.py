"""Test the trace doctor: each remark on a trace built for it, none on a healthy trace, counts equal to the file's."""

from __future__ import annotations

import gzip
import io
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.helpers import trace_builder
from tests.helpers.long_run import keep_some
from tests.helpers.merged_ranks import load_merged_ranks
from tests.helpers.paths import ROOT, SAMPLES, SHARED_TRACES
from tests.helpers.rank_traces import late_rank
from tests.helpers.trace_builder import (
    annotation,
    cpu,
    gpu_annotation,
    kernel,
    memory,
    overhead,
    python,
    runtime,
    step,
    sync,
    trace,
)
from torchprof_tui.analysis.completeness.data_loss import LOSS_MEANINGS
from torchprof_tui.analysis.doctor.examination import diagnose_trace, find_private_metadata
from torchprof_tui.analysis.doctor.read_problems import (
    _NOT_DRAWN_MEANINGS,
    _ODDITY_MEANINGS,
    _REPAIR_MEANINGS,
    Section,
    summarize_losses,
)
from torchprof_tui.analysis.slicing.slice_writer import write_slice
from torchprof_tui.trace.build.build_trace import build_trace
from torchprof_tui.trace.core import problems
from torchprof_tui.trace.core.problems import Problem
from torchprof_tui.trace.decode.general_decoder import decode_trace
from torchprof_tui.trace.loading.load_in_process import load_trace
from torchprof_tui.trace.model.trace import Trace
from torchprof_tui.trace.sources.source import Source
from torchprof_tui.ui.explorer.slice_export import format_slice_result

TRACES = SHARED_TRACES
RECORDED = {"record_shapes": 1, "with_stack": 1, "profile_memory": 1, "deviceProperties": [{"id": 0, "name": "GPU"}]}


def count_remarks(shown: Trace, section: Section) -> dict[str, int]:
    return {remark.kind: remark.count for remark in diagnose_trace(shown).remarks_in(section)}


def load_text(text: str, folder: Path) -> Trace:
    """Load a trace from its JSON text."""
    return build_trace(decode_trace(Source("made", io.BytesIO(text.encode())), folder), "made")


def healthy() -> list[Any]:
    return [
        step(0, 0, 100),
        cpu("aten::mm", 10, 50),
        runtime("cudaLaunchKernel", 20, 10, corr=1),
        kernel("gemm", 40, 30, corr=1),
        runtime("cudaStreamSynchronize", 60, 10, corr=2),
    ]


def test_a_healthy_trace_has_no_remarks() -> None:
    assert diagnose_trace(trace(*healthy(), header=RECORDED)).remarks == []
    assert diagnose_trace(trace(*healthy(), header=RECORDED)).summary == "0 lost · 0 repaired · 0 odd · 0 not recorded"


@pytest.mark.parametrize(
    ("more", "kind", "count", "example"),
    [
        ([cpu("a", 200, 50), cpu("crosses", 240, 50), cpu("inside it", 260, 5)], "overlap", 1, "crosses at 240"),
        ([kernel("x", 200, 20), kernel("y", 210, 20)], "kernels at once", 1, "y at 210"),
        (
            [runtime("cudaLaunchKernel", 300, 5, corr=9), kernel("early", 299, 20, corr=9)],
            "kernel before its launch",
            1,
            "early at 299.000 µs, 1.00 µs before its launch",
        ),
        ([kernel("lonely", 300, 5, corr=77), kernel("none", 310, 5)], "GPU work without launch", 2, "lonely at 300"),
        ([runtime("cudaLaunchKernel", 300, 5, corr=50)], "launch without GPU work", 1, "cudaLaunchKernel at 300"),
        (
            [runtime("cudaLaunchKernel", 300, 5, corr=9), kernel("none", 310, 0, corr=9)],
            "GPU work of 0 ns",
            1,
            "none at 310",
        ),
        ([overhead("short", 70, 5), overhead("Buffer Flush", 80, 9)], "profiler overhead", 2, "Buffer Flush at 80"),
        ([cpu("far", 10_000, 1)], "empty stretch", 1, "far at 10"),
    ],
)
def test_what_is_odd(more: list[Any], kind: str, count: int, example: str) -> None:
    found = {remark.kind: remark for remark in diagnose_trace(trace(*healthy(), *more, header=RECORDED)).remarks}
    assert found[kind].count == count
    assert found[kind].example.startswith(example)
    assert found[kind].section is Section.ODD
    assert found[kind].event >= 0


def test_what_only_looks_odd() -> None:
    """Calls that never launch, waits and annotations on streams, equal starts, touching ends: no remark."""
    more = [
        runtime("cudaDeviceSynchronize", 70, 5, corr=30),
        sync("Stream Sync", 40, 30, corr=30),
        runtime("cudaEventRecord", 45, 1, corr=31),
        sync("Event Sync", 50, 30, wait_on_cuda_event_record_corr_id=31),
        gpu_annotation("a", 30, 40),
        annotation("b", 100, 50),
        cpu("c", 100, 50),
        cpu("d", 150, 10),
    ]
    assert diagnose_trace(trace(*healthy(), *more, header=RECORDED)).remarks == []


@pytest.mark.parametrize(
    ("entries", "header", "kinds"),
    [
        (healthy(), {}, {"shapes", "stack", "memory", "device"}),
        (healthy()[1:], RECORDED, {"steps"}),
        ([step(0, 0, 9), cpu("a", 1, 5)], RECORDED, {"GPU work"}),
        ([step(0, 0, 9), cpu("a", 1, 5), runtime("cudaLaunchKernel", 2, 1, corr=1)], RECORDED, {"GPU work"}),
        ([step(0, 0, 9), cpu("a", 1, 5), kernel("k", 3, 1)], RECORDED, {"runtime calls"}),
        ([step(0, 0, 9), kernel("k", 3, 1)], RECORDED, {"CPU ops", "runtime calls"}),
        ([*healthy(), python("f.py(1): g", 0, 100), memory(5, 10, 10)], {}, {"shapes", "device"}),
    ],
)
def test_what_was_not_recorded(entries: list[Any], header: dict[str, Any], kinds: set[str]) -> None:
    assert set(count_remarks(trace(*entries, header=header), Section.MISSING)) == kinds


def test_the_two_causes_of_missing_gpu_work_are_distinguished() -> None:
    """Without runtime calls, GPU recording was off or there is no GPU. Calls without work: CUPTI was not permitted."""
    ops = [step(0, 0, 9), cpu("a", 1, 5)]
    (plain,) = diagnose_trace(trace(*ops, header=RECORDED)).remarks
    (calls,) = diagnose_trace(trace(*ops, runtime("cudaLaunchKernel", 2, 1, corr=1), header=RECORDED)).remarks
    assert "ProfilerActivity.CUDA" in plain.action
    assert "CUPTI" in calls.action


def test_threads_that_launch_without_ops_are_found() -> None:
    """torch.profiler records the ops of the thread that starts it, and the runtime calls of all."""
    own = [cpu("aten::add", 1, 8), runtime("cudaLaunchKernel", 2, 1, corr=1), kernel("k", 5, 1, corr=1)]
    other = [runtime("cudaLaunchKernel", 20, 1, corr=2, thread=77), kernel("k", 25, 1, corr=2)]
    assert "ops of threads" not in count_remarks(trace(*own, header=RECORDED), Section.MISSING)
    assert count_remarks(trace(*own, *other, header=RECORDED), Section.MISSING)["ops of threads"] == 1
    without_any = trace(*own[1:], *other, header=RECORDED)
    assert "ops of threads" not in count_remarks(without_any, Section.MISSING)


def test_a_chrome_trace_has_no_missing_recordings() -> None:
    assert diagnose_trace(trace(trace_builder.event("a", 0, 10, cat="x"), format="chrome")).remarks == []


def test_an_empty_trace() -> None:
    assert diagnose_trace(trace()).remarks == []


def test_shapes_are_seen_in_args_where_the_header_says_nothing(tmp_path: Path) -> None:
    shaped = [cpu(f"op{k}", 10 * k, 5, **{"Input Dims": [[2, 2]]}) for k in range(100)]
    shown = load_text(json.dumps({"schemaVersion": 1, "traceEvents": shaped}), tmp_path)
    assert "shapes" not in count_remarks(shown, Section.MISSING)
    bare = load_text(json.dumps({"schemaVersion": 1, "traceEvents": [cpu("op", 0, 5)]}), tmp_path)
    assert "shapes" in count_remarks(bare, Section.MISSING)


def test_read_problems_are_sorted_by_severity(tmp_path: Path) -> None:
    text = (
        '{"traceEvents": [{"ph": "X", "name": "C:\\q", "pid": 1, "tid": 1, "ts": 1, "dur": 2}, null,'
        '{"ph": "X", "name": "b", "pid": 1, "tid": 1, "ts": 5, "dur": 2}, {"ph": "E", "name": "l", "pid": 1, "tid": 1,'
        ' "ts": 9}, {"ph": "X", "na'
    )
    shown = load_text(text, tmp_path)
    assert count_remarks(shown, Section.LOST) == {problems.CUT_SHORT: 1}
    assert count_remarks(shown, Section.REPAIRED) == {problems.REPAIRED_BACKSLASH: 1}
    odd = count_remarks(shown, Section.ODD)
    assert (odd[problems.NOT_AN_OBJECT], odd["not drawn: end without begin"]) == (1, 1)
    assert summarize_losses(shown) == "not all of this file could be read: cut short · :doctor shows details"
    assert summarize_losses(trace(*healthy())) == ""


def test_every_problem_and_every_reason_is_explained() -> None:
    """A new kind of problem or reason for not drawing an entry needs an explanation here."""
    source = ROOT / "tui/torchprof_tui/trace"
    constants = {value for name, value in vars(problems).items() if name.isupper() and isinstance(value, str)}
    assert constants == (LOSS_MEANINGS.keys() | _REPAIR_MEANINGS.keys() | _ODDITY_MEANINGS.keys()) & constants
    text = "".join(path.read_text() for path in (source / "build").glob("*.py"))
    assert all(f'"{reason}"' in text for reason in _NOT_DRAWN_MEANINGS)


# --- real traces ----------------------------------------------------------------------------------------------------

NAMES = (
    "attention_flash",
    "cuda_graph_replay",
    "train_gpt_stack_memory",
    "matmul_add_64_cold_eager",
    "multi_stream_overlap",
    "train_gpt_starved",
)


@pytest.mark.parametrize("name", keep_some(NAMES, 3))
def test_against_the_entries_of_real_traces(name: str) -> None:
    path = SAMPLES / f"{name}.pt.trace.json.gz"
    entries = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
    complete = [entry for entry in entries if entry.get("ph") == "X"]
    work = [entry for entry in complete if entry["cat"] in ("kernel", "gpu_memcpy", "gpu_memset")]
    calls = [entry for entry in complete if entry["cat"] in ("cuda_runtime", "cuda_driver")]
    begin = {entry["args"]["correlation"]: entry["ts"] for entry in reversed(calls)}
    begin |= {e["args"]["correlation"]: e["ts"] for e in reversed(calls) if e["cat"] == "cuda_runtime"}
    early = sum(entry["ts"] < begin.get(entry["args"]["correlation"], 0) for entry in work)
    orphans = sum(entry["args"]["correlation"] not in begin for entry in work)
    busy = {entry["args"]["correlation"] for entry in work}
    launching = {entry["name"] for entry in calls if entry["args"]["correlation"] in busy}
    idle = sum(e["name"] in launching and e["args"]["correlation"] not in busy for e in calls)
    overheads = Counter(entry["cat"] for entry in complete)["overhead"]

    shown = load_trace(str(path), cache=False)
    odd = count_remarks(shown, Section.ODD)
    assert odd.get("kernel before its launch", 0) == early
    assert odd.get("GPU work without launch", 0) == orphans
    assert odd.get("launch without GPU work", 0) == idle
    assert odd.get("profiler overhead", 0) == overheads
    missing = count_remarks(shown, Section.MISSING)
    ops = [entry for entry in complete if entry["cat"] == "cpu_op"]
    assert ("shapes" in missing) == (bool(ops) and not any("Input Dims" in entry["args"] for entry in ops))
    assert ("stack" in missing) == (bool(ops) and not any(entry["cat"] == "python_function" for entry in complete))
    assert ("memory" in missing) == (bool(ops) and not any(entry.get("name") == "[memory]" for entry in entries))
    assert ("steps" in missing) == (not any(entry["name"].startswith("ProfilerStep#") for entry in complete))


def test_an_example_names_its_rank(tmp_path: Path) -> None:
    run = late_rank(2)
    run.more[1] = [kernel("lost", 50, 5)]
    remarks = diagnose_trace(load_merged_ranks(run.write(tmp_path))).remarks
    found = next(remark for remark in remarks if remark.kind == "GPU work without launch")
    assert found.example.startswith("rank 1: lost at ")


def test_a_cut_connection_reports_the_bytes_that_arrived() -> None:
    shown = trace(*healthy())
    shown.problems.append(Problem(problems.CUT_CONNECTION, 1, "connection to box lost at 5 of 90 MB; exit status 255"))
    assert summarize_losses(shown) == "partial: connection to box lost at 5 of 90 MB · :doctor shows details"


VARIABLES = {"HOME": "/root", "TOKEN_OF_MINE": "hidden-value"}


def test_ranks_are_added_up(tmp_path: Path) -> None:
    paths = late_rank(ranks=3).write(tmp_path)
    for path in paths[1:]:
        path.write_text(json.dumps(json.loads(path.read_text()) | {"env": VARIABLES}))
    (remark,) = find_private_metadata(load_merged_ranks(paths))
    assert (remark.kind, remark.count) == ("environment variables", 4)
    assert remark.example == "rank 1: env and 1 more"
    assert "hidden-value" not in str(remark)


def test_large_values_are_read(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    large = {"system": {"env": VARIABLES}, "packages": ["x" * 100] * 1000}
    path.write_text(json.dumps({"metadata": large, "traceEvents": [cpu("aten::mm", 1, 5)]}))
    trace = load_trace(str(path), cache=False)
    assert trace.large_keys is not None
    assert [(each.count, each.example) for each in find_private_metadata(trace)] == [(2, "metadata.system.env")]


def test_a_trace_without_such_metadata(tmp_path: Path) -> None:
    assert not list(find_private_metadata(load_merged_ranks(late_rank(ranks=2).write(tmp_path))))


def test_the_app_says_what_a_slice_lacks(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text(json.dumps({"env": VARIABLES, "traceEvents": [cpu("aten::mm", 1, 5)]}))
    sliced = write_slice(load_trace(str(path), cache=False), 0, 10_000, tmp_path / "b.json")
    assert format_slice_result(sliced).endswith("; left out: env (2 environment variables)")
    assert sliced.left_out == ["env"]
