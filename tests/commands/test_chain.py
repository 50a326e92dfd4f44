"""`torchprof-tui chain`, as scripts and people meet it."""

from __future__ import annotations

import gzip
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.trace_builder import annotation, cpu, kernel, memcpy, python, runtime, step
from tests.trace.build.test_graph_dependencies import replay
from torchprof_samples import find as sample
from torchprof_tui.cli import main


def told(capsys: pytest.CaptureFixture[str], *words: str | Path) -> str:
    assert main(["chain", *map(str, words)]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    return out


def answer(capsys: pytest.CaptureFixture[str], *words: str | Path) -> Any:
    return json.loads(told(capsys, *words, "--json"))


def refused(capsys: pytest.CaptureFixture[str], *words: str | Path) -> str:
    assert main(["chain", *map(str, words)]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("torchprof-tui: ")
    assert err.count("\n") == 1
    return err


def test_the_contract_on_a_real_trace(capsys: pytest.CaptureFixture[str]) -> None:
    """Every number against the file itself."""
    found = answer(capsys, "sample:matmul_add_64_cold_eager", "--event", "aten::mm", "--nth", "1")
    text = gzip.decompress(sample("matmul_add_64_cold_eager").path.read_bytes())
    entries = [entry for entry in json.loads(text, parse_float=Decimal)["traceEvents"] if entry["ph"] == "X"]

    def ns(micros: Decimal) -> int:
        return round(micros * 1000)

    zero = min(ns(entry["ts"]) for entry in entries if entry["pid"] != "Spans")
    mm = sorted((entry for entry in entries if entry["name"] == "aten::mm"), key=lambda entry: entry["ts"])[1]
    calls = [entry for entry in entries if entry["cat"] in ("cuda_runtime", "cuda_driver")]
    call = next(e for e in calls if e["tid"] == mm["tid"] and mm["ts"] <= e["ts"] < mm["ts"] + mm["dur"])
    number = call["args"]["correlation"]
    work = next(e for e in entries if e["cat"] == "kernel" and e["args"]["correlation"] == number)
    assert [hop["role"] for hop in found["chain"]] == ["step", "annotation", "op", "op", "launch", "gpu"]
    for hop, entry in zip(found["chain"][3:], (mm, call, work), strict=True):
        assert hop["name"] == entry["name"]
        assert hop["start_ns"] == ns(entry["ts"]) - zero
        assert hop["duration_ns"] == ns(entry["dur"])
    assert found["chain"][0]["name"] == "ProfilerStep#3"
    assert found["chain"][3]["self_ns"] == ns(mm["dur"]) - ns(call["dur"])
    assert found["launch_latency_ns"] == ns(work["ts"]) - ns(call["ts"])
    assert found["queue_delay_ns"] == ns(work["ts"]) - ns(call["ts"]) - ns(call["dur"])
    assert found["backward_of"] is None
    args, footprint = work["args"], found["footprint"]
    assert (footprint["grid"], footprint["block"]) == (args["grid"], args["block"])
    assert footprint["registers_per_thread"] == args["registers per thread"]
    assert footprint["shared_memory_bytes"] == args["shared memory"]
    assert footprint["reported_occupancy"] == args["est. achieved occupancy %"]
    assert footprint["blocks_per_sm_limit"] == {"warps": 5, "registers": 1, "shared_memory": 1, "blocks": 32}
    assert footprint["theoretical_occupancy"] == 18.75
    assert footprint["limited_by"] == ["registers", "shared_memory"]
    assert footprint["active_blocks_per_sm"] == 1
    assert footprint["kernel_class"] == "gemm"
    assert footprint["decoded"]["arch"] == "sm_90"
    assert (found["event"], found["nth"], found["of"]) == ("aten::mm", 1, 3)


def test_backwards_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    found = answer(capsys, "sample:train_gpt_stack_memory", "--event", "AddmmBackward0")
    assert found["backward_of"] == "aten::addmm"
    assert found["gpu_work"]["count"] == len(found["gpu_work"]["heaviest"]) == 2
    assert sum(piece["share"] for piece in found["gpu_work"]["heaviest"]) == pytest.approx(1)
    assert "it is part of the backward of addmm" in told(
        capsys, "sample:train_gpt_stack_memory", "--event", "AddmmBackward0"
    )


@pytest.mark.long
def test_a_copy_has_no_footprint_but_a_transfer(capsys: pytest.CaptureFixture[str]) -> None:
    name = "Memcpy HtoD (Pinned -> Device)"
    found = answer(capsys, "sample:train_gpt_starved", "--event", name)
    assert found["footprint"] is None
    assert found["transfer"]["pinned"] is True
    assert found["transfer"]["bandwidth_gb_s"] == pytest.approx(
        found["transfer"]["bytes"] / found["chain"][-1]["duration_ns"]
    )
    assert "8.1 KiB in 1.12 µs: 7.37 GB/s" in told(capsys, "sample:train_gpt_starved", "--event", name)


@pytest.fixture
def literal(tmp_path: Path) -> Path:
    path = tmp_path / "trace.json"
    entries = [
        step(1, 0, 100),
        annotation("forward", 5, 90),
        cpu("aten::mm", 10, 40),
        runtime("cudaLaunchKernel", 20, 10, corr=1),
        runtime("cudaMemcpyAsync", 35, 5, corr=2),
        kernel("my_kernel", 50, 30, corr=1),
        memcpy("Memcpy DtoH (Device -> Pinned)", 80, 10, corr=2, bytes=1000),
        kernel("lost", 95, 5, corr=7),
        cpu("esc\x1b[31mape", 96, 1),
        python("/x/\x1b[2J/train\x1b.py(1): f\x1b", 101, 3),
        cpu("in a frame", 102, 1),
    ]
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": entries}))
    return path


def test_what_a_person_reads(literal: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = [line.rstrip() for line in told(capsys, literal, "--event", "aten::mm").splitlines()]
    assert lines[:20] == [
        "aten::mm  the only one of this name, at 10.0 µs",
        "",
        "                                         total     self  starts after",
        "step        ProfilerStep#1            100.0 µs  9.00 µs",
        "annotation    └ forward                90.0 µs  50.0 µs      +5.00 µs",
        "op              └ aten::mm             40.0 µs  25.0 µs      +5.00 µs",
        "launch            └ cudaLaunchKernel   10.0 µs  10.0 µs      +10.0 µs",
        "gpu                 ⇢ my_kernel        30.0 µs  30.0 µs      +30.0 µs",
        "",
        "annotation: forward",
        "launch latency 30.0 µs: from the start of the call to the start of the GPU work",
        "queue delay 20.0 µs: from the end of the call to the start of the GPU work; the stream was idle during this "
        "time",
        "",
        "All GPU work that it launched: 2 pieces, 40.0 µs",
        "             GPU time  share",
        "my_kernel     30.0 µs   75 %",
        "memcpy DtoH   10.0 µs   25 %",
        "",
        "Footprint of my_kernel",
        "• The trace does not describe this GPU: occupancy cannot be computed.",
    ]


def test_the_line_of_the_program(literal: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = answer(capsys, "sample:train_gpt_stack_memory", "--event", "aten::mm", "--nth", "3")
    assert found["line"].endswith("profiler_runs/train_gpt.py:59")
    assert found["line_source"] == {
        "kind": "frame",
        "text": "train_gpt.py(59): forward",
        "function": "forward",
        "from_forward": True,
        "library": None,
    }
    text = told(capsys, "sample:train_gpt_stack_memory", "--event", "aten::mm", "--nth", "3")
    assert f"line of its forward: train_gpt.py(59): forward\n  {found['line']}\n" in text
    annotated = answer(capsys, literal, "--event", "aten::mm")
    assert (annotated["line"], annotated["line_source"]["text"]) == (None, "forward")
    lost = answer(capsys, literal, "--event", "lost")
    assert (lost["line"], lost["line_source"]) == (None, None)


MUL = (
    "void at::native::vectorized_elementwise_kernel<{}, at::native::BinaryFunctor<c10::BFloat16, c10::BFloat16, "
    "c10::BFloat16, at::native::binary_internal::MulFunctor<float> >, std::array<char*, 3ul> >(int)"
)


def test_an_event_is_found_by_what_the_lanes_print(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Two templates are both printed as "mul bf16"; an operator is printed without its prefix."""
    path = tmp_path / "trace.json"
    entries = [
        cpu("aten::mul", 0, 10),
        kernel(MUL.format(4), 40, 3, corr=2),
        kernel(MUL.format(8), 20, 5, corr=1),
        kernel("mul bf16 of my own", 60, 5, corr=3),
    ]
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": entries}))
    for words in ("mul bf16", "elementwise · mul bf16"):
        first, second = (answer(capsys, path, "--event", words, "--nth", nth) for nth in ("0", "1"))
        assert (first["of"], second["of"]) == (2, 2)
        assert (first["chain"][-1]["name"], second["chain"][-1]["name"]) == (MUL.format(8), MUL.format(4))
    assert answer(capsys, path, "--event", "mul")["chain"][-1]["name"] == "aten::mul"
    assert answer(capsys, path, "--event", MUL.format(4))["of"] == 1
    assert "did you mean 'mul bf16 of my own', 'mul bf16', 'elementwise" in refused(capsys, path, "--event", "ul bf16")


def test_what_is_missing_is_said(literal: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "No launch was recorded" in told(capsys, literal, "--event", "lost")
    assert answer(capsys, literal, "--event", "lost")["launch_latency_ns"] is None


def test_names_cannot_drive_the_terminal(literal: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "\x1b" not in told(capsys, literal, "--event", "esc\x1b[31mape")
    framed = told(capsys, literal, "--event", "in a frame")
    assert "\x1b" not in framed
    assert "line: train·.py(1): f·" in framed
    assert "\x1b" not in refused(capsys, literal, "--event", "esc\x1b")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--event", "t::mm"), "no event has the name 't::mm'; did you mean 'aten::mm'?"),
        (("--event", "cudaLaunchKernl"), "'cudaLaunchKernel'"),
        (("--event", "something else entirely"), "no event has the name 'something else entirely'"),
        (("--event", "aten::mm", "--nth", "1"), "occurs once; the first one is 0"),
        (("--event", "aten::mm", "--nth", "-1"), "the first event of a name is 0"),
        ((), "--event"),
    ],
)
def test_a_wrong_call_is_one_line(
    literal: Path, words: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert said in refused(capsys, literal, *words)


def test_edges_of_a_replayed_graph_are_listed_as_such(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": replay(0, 1)}))
    found = answer(capsys, path, "--event", "b")
    edges = found["graph_edges"]
    assert [hop["name"] for hop in edges["waits_for"]] == ["a"]
    assert [hop["name"] for hop in edges["waited_for_by"]] == ["d"]
    assert [hop["name"] for hop in found["chain"]] == ["cudaGraphLaunch", "b"]
    assert "graph edge: waits for b, c" in told(capsys, path, "--event", "d")
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": replay(0, 1, [])}))
    assert answer(capsys, path, "--event", "b")["graph_edges"] is None


def test_a_copy_inside_a_gpu_is_not_more_than_all_of_the_peak(capsys: pytest.CaptureFixture[str]) -> None:
    text = told(capsys, "sample:article_4096_compile", "--event", "Memcpy DtoD (Device -> Device)")
    assert "32.0 MiB in 19.1 µs: 1,753 GB/s" in text
    assert "read and written 3,507 GB/s, more than 3,352 GB/s (device memory): a part stayed in a cache" in text
    assert "105 %" not in text


def test_one_row_per_step_below_what_is_typical(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("sample:article_64_cold", "--event", "aten::mm", "--all-steps")
    lines = told(capsys, *words).splitlines()
    assert lines[0] == "aten::mm  --nth 0 of 3: 3 steps"
    assert "gap mean 12.5 µs, typical 7.86 µs" in lines[1]
    rows = {line.split()[0]: line for line in lines[3:]}
    assert list(rows) == ["step", "mean", "median", "p5", "p95", *(f"ProfilerStep#{k}" for k in (2, 3, 4))]
    assert "22.1 µs*" in rows["ProfilerStep#2"]  # the dead window
    assert [("*" in row) for row in rows.values()] == [False] * 5 + [True, False, False]
    found = answer(capsys, *words)["steps"]
    assert [row["first_op_gap_ns"] for row in found["rows"]] == [22060, 7864, 7500]
    assert [each["median_ns"] for each in found["spread"] if each["of"] == "first_op_gap_ns"] == [7864]
    assert "steps" not in answer(capsys, *words[:-1])


def test_rows_need_steps(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "no_steps.json"
    path.write_text(json.dumps({"traceEvents": [cpu("aten::mm", 0, 10)]}))
    assert "the trace has no steps" in refused(capsys, path, "--event", "aten::mm", "--all-steps")
    outside = refused(capsys, "sample:article_64_cold", "--event", "cudaDeviceSynchronize", "--all-steps")
    assert "this event is in no step" in outside
