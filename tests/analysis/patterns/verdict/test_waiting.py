"""Test what the verdict says of waits: pauses, turns, slow transfers; literal programs whose cause is known."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tests.helpers.trace_builder import Entry, annotation, cpu, flow, kernel, python, runtime, step, trace
from torchprof_tui.analysis.patterns.engine.check_scope import default_scope
from torchprof_tui.analysis.patterns.engine.checker import Checker
from torchprof_tui.analysis.patterns.engine.scope_view import format_percent
from torchprof_tui.analysis.patterns.verdict.check_report import check_trace
from torchprof_tui.analysis.patterns.verdict.verdict import Regime, Verdict
from torchprof_tui.trace.loading.load_in_process import load_trace

GEMM = "nvjet_sm90_tst_128x256_64x4_2x1_v_bz_coopA_TNN"
ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
HEADER = {"deviceProperties": [{"id": 0, "name": "NVIDIA H200", "computeMajor": 9, "computeMinor": 0, "numSms": 132}]}


def decide(*entries: Entry | list[Entry]) -> Verdict:
    checker = Checker(trace(*flatten(entries), header=HEADER))
    return checker.decide_verdict(findings=checker.check())


def flatten(entries: Iterable[Entry | list[Entry]]) -> list[Entry]:
    return [entry for part in entries for entry in (part if isinstance(part, list) else [part])]


def decide_file(path: Path, *entries: Entry | list[Entry]) -> Verdict:
    """Decide on a program whose kernels have args that are read from its file."""
    path.write_text(json.dumps({**HEADER, "traceEvents": flatten(entries)}))
    checker = Checker(load_trace(str(path), cache=False))
    return checker.decide_verdict(findings=checker.check())


def launched(corr: int, op: str, at: float, start: float, length: float, name: str = GEMM, **where: Any) -> list[Entry]:
    """An op of 10 µs that launches one kernel; `where`: its stream, device and args."""
    device, stream = where.get("device", 0), where.get("stream", 7)
    return [
        cpu(op, at, 10),
        runtime("cudaLaunchKernel", at + 2, 5, corr),
        flow("s", "ac2g", corr, at + 2),
        kernel(name, start, length, corr, **where),
        flow("f", "ac2g", corr, start, thread=stream, pid=device),
    ]


def pausing_program(*during: Entry) -> list[Entry | list[Entry]]:
    """Two ops on an idle GPU, 5 ms of host code apart from 1 ms on."""
    return [launched(1, "aten::mm", 0, 10, 900), *during, launched(2, "aten::mm", 6000, 6010, 900)]


def test_a_pause_without_a_name_asks_for_stacks() -> None:
    verdict = decide(*pausing_program())
    assert "for host code outside any op, between aten::mm and aten::mm (1× 5.09 ms)" in verdict.first
    assert "with_stack=True" in verdict.first
    assert verdict.line is None


def test_a_pause_names_the_frame_it_is_in() -> None:
    verdict = decide(
        python("train.py(10): main", 0, 7000), *pausing_program(python("train.py(88): save_checkpoint", 950, 5000))
    )
    assert "for host code in train.py(88): save_checkpoint (1× 5.09 ms): move it out of the step" in verdict.first
    assert verdict.line is not None
    assert verdict.line.location == "train.py:88"
    assert "with_stack" not in verdict.first


def test_a_pause_names_the_annotation_it_is_in() -> None:
    verdict = decide(*pausing_program(annotation("tokenize", 950, 5000)))
    assert "for host code in tokenize (" in verdict.first
    assert "with_stack" not in verdict.first


def test_a_pause_names_the_library_that_it_is_in() -> None:
    own, library = python("train.py(88): prepare", 950, 5000), python("transformers/image.py(17): resize", 960, 4000)
    assert "host code in train.py(88): prepare, most of it in" in decide(*pausing_program(own, library)).first
    assert "image.py(17): resize (1×" in decide(*pausing_program(own, library)).first


def test_a_pause_goes_before_work_without_need_that_takes_less() -> None:
    """One step: attention that is written out takes 15 % of it, one pause 76 %."""
    names = ["matmul", "transpose", "div", "softmax", "to", "dropout", "matmul"]
    attention = [launched(k + 2, f"aten::{name}", 5100 + 12 * k, 5110 + 200 * k, 200) for k, name in enumerate(names)]
    program = [step(1, 0, 6600), launched(1, "aten::to", 5, 15, 100), *attention]
    built = trace(*flatten(program), header=HEADER)
    report = check_trace(built, default_scope(built))
    assert "76 % of the time for host code outside any op" in report.verdicts[0].first
    assert [finding.id for finding in report.findings if finding.is_problem][:2] == ["host-code", "written-out"]


def test_an_op_on_the_cpu_goes_before_launches_in_general_from_a_third_of_the_wait_on() -> None:
    """Fifty different ops keep the GPU waiting for 5 ms, and one on the CPU for 1 or 4."""

    def run(length: float) -> str:
        small = [launched(k + 1, f"aten::op_{k}", 100 * k, 100 * k + 8, 3) for k in range(50)]
        after = launched(99, "aten::mm", 5_010 + length, 5_020 + length, 3)
        return decide(step(1, 0, 5_030 + length), *small, cpu("aten::histc", 5_000, length), after).first

    assert "for ops that compute on the CPU (aten::histc 4.00 ms)" in run(4_000)
    assert "for the CPU to dispatch and launch" in run(1_000)


def divided_model(overlap: bool) -> list[list[Entry]]:
    """Everything is launched at once; device 1 works on what device 0 made, or both at the same time."""
    program = []
    for k in range(4):
        first = 1000 + 2000 * k
        second = first + (0 if overlap else 1000)
        program.append(launched(2 * k + 1, "aten::mm", 40 * k, first, 990, device=0))
        program.append(launched(2 * k + 2, "aten::mm", 40 * k + 20, second, 990, device=1))
    return program


def test_gpus_that_take_turns() -> None:
    verdict = decide(*divided_model(overlap=False))
    assert verdict.regime is Regime.MIXED
    assert "the GPUs take turns" in verdict.first
    assert "micro-batches" in verdict.first


def test_gpus_that_work_at_the_same_time_take_no_turns() -> None:
    assert "take turns" not in decide(*divided_model(overlap=True)).first


def reducing_program(length: float, elements: int) -> list[Entry | list[Entry]]:
    """Three steps of 1 ms of work and one all-reduce among 8 ranks, of which this host shows one device."""
    size = {"Collective name": "allreduce", "In msg nelems": elements, "Out msg nelems": elements}
    group = {"dtype": "BFloat16", "Group size": 8, "Process Group Name": "0"}
    program: list[Entry | list[Entry]] = []
    for k in range(3):
        at = k * (1100 + length)
        program.append(step(k + 1, at, 1090 + length))
        program.append(launched(2 * k + 1, "aten::mm", at + 5, at + 15, 985))
        reduce = launched(2 * k + 2, "c10d::allreduce_", at + 30, at + 1010, length, ALL_REDUCE, **size, **group)
        program.append(reduce)
    return program


def test_an_all_reduce_too_slow_for_any_link_asks_for_the_other_ranks(tmp_path: Path) -> None:
    verdict = decide_file(
        tmp_path / "rank0.json", *reducing_program(9000, 17 * 2**19)
    )  # 17 MiB in 9 ms: 3.5 GB/s on the bus
    assert verdict.regime is Regime.COMMUNICATION
    assert "3.5 GB/s (a late rank, or a slow network): open the traces of all ranks" in verdict.first
    assert "overlap" not in verdict.first


def test_a_fast_all_reduce_is_to_be_overlapped(tmp_path: Path) -> None:
    verdict = decide_file(tmp_path / "rank0.json", *reducing_program(1000, 100 * 2**20))
    assert verdict.regime is Regime.COMMUNICATION
    assert "other ranks" not in verdict.first


def test_one_kernel_has_no_median() -> None:
    verdict = decide(launched(1, "aten::mm", 0, 10, 20))
    assert "1 kernel (20.0 µs)" in verdict.first
    assert "median" not in verdict.first


def test_a_short_collection_does_not_explain_a_long_pause() -> None:
    collection, tokenizing = python("<built-in function collect>", 1000, 300), python("train.py(7): tok", 1400, 4500)
    assert "in train.py(7): tok" in decide(*pausing_program(collection, tokenizing)).first
    alone = decide(*pausing_program(python("<built-in function collect>", 950, 5000)))
    assert alone.first.startswith("the garbage collector stops the program (7")


def test_what_graphs_still_cost_is_said() -> None:
    entries = [
        entry
        for k in range(6)
        for entry in (
            step(k + 1, 300 * k, 300),
            runtime("cudaGraphLaunch", 300 * k + 50, 100, k + 1),
            kernel("gemm", 300 * k + 155, 50, k + 1),
            kernel("gemm", 300 * k + 206, 40, k + 1),
        )
    ]
    checker = Checker(trace(*entries))
    verdict = checker.decide_verdict(findings=checker.check())
    assert "graphs are replayed already" in verdict.first
    assert verdict.why == "6 replays 600.0 µs (33 %)"


def unbucketed_program(elements: int) -> list[Entry | list[Entry]]:
    """A step of one product and 40 all-reduces of float32 after it, as many as gradients."""
    size = {"Collective name": "allreduce", "In msg nelems": elements, "Out msg nelems": elements}
    group = {"dtype": "Float", "Group size": 8, "Process Group Name": "0"}
    program: list[Entry | list[Entry]] = [step(1, 0, 3000), launched(1, "aten::mm", 5, 15, 285)]
    for k in range(40):
        program.append(cpu("torch::autograd::AccumulateGrad", 20 + k, 0.5))
        at = 300 + 65 * k
        program.append(
            launched(k + 2, "c10d::allreduce_", 100 + 12 * k, at, 60, ALL_REDUCE, stream=20, **size, **group)
        )
    return program


def test_small_all_reduces_are_to_be_bucketed(tmp_path: Path) -> None:
    verdict = decide_file(tmp_path / "rank0.json", *unbucketed_program(4500))
    assert verdict.regime is Regime.COMMUNICATION
    (found,) = Checker(load_trace(str(tmp_path / "rank0.json"), cache=False)).check(ids=["exposed-comm"])
    assert found.answer.seen.startswith("2.40 ms of 2.40 ms in collectives is exposed, 2.60 ms with the gaps between")
    assert verdict.first == (
        "40 all-reduces a step, one per parameter, 18 kB in the median, take 86 % of the time with nothing computed "
        "beside, gaps included: bucket them (DDP's bucket_cap_mb, or one flattened all-reduce)"
    )


def test_large_all_reduces_are_not(tmp_path: Path) -> None:
    verdict = decide_file(tmp_path / "rank0.json", *unbucketed_program(2**20))
    assert verdict.regime is Regime.COMMUNICATION
    assert "bucket them" not in verdict.first


def test_the_wait_for_the_cpu_is_divided_as_the_tree_is() -> None:
    entries: list[Entry | list[Entry]] = [step(1, 0, 4000)]
    entries += [launched(k + 1, "aten::mm" if k % 2 else "aten::add", 40 * k, 40 * k + 8, 4) for k in range(100)]
    verdict = decide(*entries)
    assert "for the CPU to dispatch and launch 100 kernels a step" in verdict.first
    assert verdict.tree is not None
    waited = {part.id: round(verdict.tree.share(part) * 100) for part in verdict.tree.parts}
    assert verdict.why.startswith("of these ")
    assert f"host code {waited['host_code']} %" in verdict.why
    assert f"launch {waited['launch']} %" in verdict.why


def test_what_the_gpu_waits_for_in_the_first_step_is_named_with_what_is_queued() -> None:
    """Three steps; the first launches after 700 µs, and its work starts 193 µs later than it was launched."""
    program = [[step(k + 1, 1000 * k, 1000)] for k in range(3)] + [launched(9, "aten::mm", 1, 11, 5)]
    program += [launched(k + 1, "aten::mm", 700 if not k else 1000 * k + 10, 900 + 1000 * k, 1000) for k in range(3)]
    assert decide(*program).first.startswith(
        "the GPU is idle 23 % of the time, all of it in the first step (host code 18 %, queued 5.0 %, launch 0.3 %), "
        "then it is 100 % busy; the GPU's time is 100 % bf16 GEMMs"
    )


def test_the_first_step_costs_the_time_in_which_later_ones_keep_the_gpu_busy() -> None:
    """Three steps of 160 µs work; the first launches after 200 µs, the others fill the queue and are short."""
    program = [[step(1, 0, 240)], [step(2, 240, 110)], [step(3, 350, 110)]]
    program += [launched(1, "aten::mm", 200, 210, 160), launched(2, "aten::mm", 250, 370, 160)]
    built = trace(*flatten([*program, launched(3, "aten::mm", 360, 530, 160)]), header=HEADER)
    report = check_trace(built, default_scope(built))
    found = next(finding for finding in report.findings if finding.id == "first-step-wide")
    assert found.cost == 210_000  # its step is only 130 µs longer than the others
    assert report.verdicts[0].what.startswith(
        "the first step costs 30 % of the time: the GPU waits in it (host code and launch), then it is 100 % busy"
    )
    assert format_percent(found.share) == "30 %"
