"""What findings cost: no time in two findings, none above the scope, the verdict first, and nothing small listed."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from tests.helpers.long_run import keep_some
from tests.helpers.merged_ranks import load_shared_ranks
from tests.helpers.paths import SAMPLES, find_shared_trace, find_shared_traces, mark_long_traces
from tests.helpers.pattern_traces import H200, SGEMM, healthy, op_with_work
from tests.helpers.trace_builder import Entry, annotation, python, runtime, step, trace
from torchprof_tui.analysis.patterns.engine import thresholds
from torchprof_tui.analysis.patterns.engine.check_scope import default_scope, range_scope
from torchprof_tui.analysis.patterns.engine.pattern import Severity
from torchprof_tui.analysis.patterns.engine.scope_view import format_percent
from torchprof_tui.analysis.patterns.verdict.check_report import CheckReport, check_trace
from torchprof_tui.analysis.patterns.verdict.costs import _take_first
from torchprof_tui.analysis.patterns.verdict.tree_model import COMPUTE, EXPOSED
from torchprof_tui.analysis.patterns.verdict.verdict import Regime
from torchprof_tui.analysis.time.intervals import Intervals, union
from torchprof_tui.trace.core.errors import TraceError
from torchprof_tui.trace.loading.load_in_process import load_trace

SMALLEST = thresholds.LISTED_SHARE.value


def assert_costs_hold(report: CheckReport) -> None:
    """Assert what holds for the costs of any trace and scope."""
    problems = report.problems
    for found in report.findings:
        if found.is_problem:
            assert found.cost is not None
            assert 0 <= found.cost <= found.answer.at_stake
            assert found.cost <= report.base.time or report.trace.merged_ranks is not None
            assert found.won is None or found.won <= found.share + 1e-9
    for found in problems:
        assert found.share >= SMALLEST
        assert found.is_leading or found.won is None or found.won >= SMALLEST
    # The verdict's comes first: it is the largest, but for what a pattern of the whole scope is left with.
    shares = [found.share for found in problems if found.id != "overhead-bound"]
    assert shares == sorted(shares, reverse=True), [(found.id, found.share) for found in problems]
    if report.trace.merged_ranks is None:
        assert sum(found.cost or 0 for found in report.findings) <= report.base.time + len(report.findings)
        assert [found.id for found in problems[1:] if found.is_leading] == []


@pytest.mark.parametrize(
    "path", keep_some(mark_long_traces([*sorted(SAMPLES.glob("*.json.gz")), *find_shared_traces()]), 9)
)
def test_costs_hold_on_every_trace(path: Path) -> None:
    try:
        loaded = load_trace(str(path), cache=False)
    except TraceError:
        pytest.skip("this is no trace")
    assert_costs_hold(check_trace(loaded, default_scope(loaded)))
    first, last = loaded.span
    middle = range_scope(first + (last - first) // 3, max(last - (last - first) // 3, first + (last - first) // 3 + 1))
    assert_costs_hold(check_trace(loaded, middle))


@pytest.mark.long
@pytest.mark.parametrize("name", keep_some(["ddp", "fsdp"], 1))
def test_costs_hold_on_ranks(name: str) -> None:
    merged = load_shared_ranks(name)[1]
    assert_costs_hold(check_trace(merged, default_scope(merged)))


@pytest.mark.parametrize(
    "name", ["generate_eager", "matmul_add_64_sched0_active3", pytest.param("fsdp", marks=pytest.mark.long)]
)
def test_the_first_sentence_and_its_finding_say_the_same_share(name: str) -> None:
    """A part of the wait has another cause, or another finding explains it: 74 and 79 %, or 90 and 81 %."""
    path = find_shared_trace(f"{name}.pt.trace.json.gz")
    path = path if path.exists() else SAMPLES / path.name
    loaded = load_shared_ranks(name)[1] if name == "fsdp" else load_trace(str(path))
    report = check_trace(loaded, default_scope(loaded))
    shares = {found.id: format_percent(found.share) for found in report.findings}
    own = [verdict for verdict in report.verdicts if verdict.cause not in (COMPUTE, EXPOSED)]
    assert own
    for verdict in own:
        for text in (verdict.first, verdict.what):
            assert re.search(rf"(waits |takes? |\(){shares[verdict.pattern]}", text)


@pytest.mark.parametrize(
    ("name", "why"), [("released/train", "57 % with what other findings explain: host"), ("geglu_mlp_eager", "")]
)
def test_no_share_beside_that_of_the_first_finding_is_called_the_same(name: str, why: str) -> None:
    """57 % idle where the finding costs 51, and 23 % idle where the first step costs 12."""
    path = find_shared_trace(f"{name}.pt.trace.json.gz") if "/" in name else SAMPLES / f"{name}.pt.trace.json.gz"
    if not path.exists():
        pytest.skip("this trace is not here")
    loaded = load_trace(str(path), cache=False)
    report = check_trace(loaded, default_scope(loaded))
    share, (verdict,) = format_percent(report.problems[0].share), report.verdicts
    assert re.search(rf"(waits|costs) {share} of the time", verdict.what)
    assert verdict.why.startswith(why)


@pytest.mark.parametrize("name", ["public/facebookresearch+param/worker2_step_12.1694128201554"])
def test_a_finding_that_no_pattern_is_about_says_its_cost(name: str) -> None:
    """44 % in the first sentence, and 50 % idle."""
    path = find_shared_trace(f"{name}.pt.trace.json.gz")
    if not path.exists():
        pytest.skip("this trace is not here")
    loaded = load_trace(str(path), cache=False)
    report = check_trace(loaded, default_scope(loaded))
    assert report.problems[0].answer.seen == report.verdicts[0].what
    assert f"waits {format_percent(report.problems[0].share)} of the time" in report.verdicts[0].what


def test_a_first_step_that_costs_time_is_named_where_the_gpu_is_busy_else() -> None:
    """20 steps of which the first keeps the GPU idle: 8 % of the time, which no kernel explains."""
    loaded = load_trace(str(SAMPLES / "article_4096_active20.pt.trace.json.gz"), cache=False)
    report = check_trace(loaded, default_scope(loaded))
    assert report.problems[0].id == "first-step-wide"
    cost = format_percent(report.problems[0].share)
    assert report.verdicts[0].what.startswith(f"the first step costs {cost} of the time: the GPU waits in it")


def test_a_wait_that_another_finding_explains_for_the_most_part_stays_what_was_measured() -> None:
    merged = load_shared_ranks("ddp")[1]
    late = check_trace(merged, default_scope(merged)).verdicts[2]
    assert "the GPU waits 76 % of the time" in late.first  # 53 of it are the slow host, a finding of its own
    assert late.why.startswith("of these 76 %: dispatch 40 %")


@pytest.mark.long
def test_the_sentence_on_a_late_rank_says_what_its_finding_costs() -> None:
    merged = load_shared_ranks("ddp")[1]
    report = check_trace(merged, default_scope(merged))
    cost = format_percent(report.problems[0].share)
    assert report.problems[0].id == "straggler"
    text = report.ranks_by_verdict[0][0]  # of ranks 0 and 3, the latter of which waits longest
    assert f"rank 2 is late at 21 of 21 collectives, which costs 43 to {cost} of the time: " in text


@pytest.mark.long  # each push: ranks 0 and 3 of the late rank, above
def test_ranks_whose_verdicts_differ_in_numbers_alone_are_named_together() -> None:
    merged = load_shared_ranks("fsdp")[1]
    (text, why, _, ranks), (_, _, late, others) = check_trace(merged, default_scope(merged)).ranks_by_verdict
    assert (ranks, others) == ([0, 2, 3], [1])
    assert "GPU busy 86 to 100 % of the steps · rank 1 is late" in text
    assert why.endswith("a rank waits 162.7 to 165.4 ms in all, on average")
    assert "GPU busy 4.7 % of" in late.text


def test_a_trace_with_nothing_wrong_lists_nothing() -> None:
    built = trace(*healthy())
    report = check_trace(built, default_scope(built))
    assert [found.id for found in report.problems if found.pattern.severity is Severity.PROBLEM] == []


def test_a_set_of_times_is_taken_from_its_start() -> None:
    times = union(np.array([0, 20, 50]), np.array([10, 25, 60]))

    def list_taken(length: int) -> list[tuple[int, int]]:
        taken: Intervals = _take_first(times, length)
        return list(zip(taken.starts.tolist(), taken.ends.tolist(), strict=True))

    assert list_taken(-1) == list_taken(0) == []
    assert list_taken(12) == [(0, 10), (20, 22)]
    assert list_taken(15) == [(0, 10), (20, 25)]
    assert list_taken(99) == [(0, 10), (20, 25), (50, 60)]


def working_op(at: float, cost: float, name: str = "aten::mm") -> list[Entry]:
    """An op whose kernel of 2 µs starts shortly after its launch."""
    return op_with_work(name, at, at + 0.8 * cost, 2, cost=cost)


def test_a_wait_that_the_verdict_names_is_one_finding() -> None:
    """Three steps, the first of them longer, in which the GPU waits for ops: nothing takes a part of it away."""
    entries = [
        entry
        for k, (at, length) in enumerate(((0, 3000), (3000, 1000), (4000, 1000)))
        for entry in (
            step(k + 1, at, length),
            *(each for n in range(6) for each in working_op(at + length // 6 * n, 150, f"aten::op{n}")),
        )
    ]
    built = trace(*entries)
    report = check_trace(built, default_scope(built))
    first = {found.id: found for found in report.findings}
    assert report.verdicts[0].pattern == report.problems[0].id == "overhead-bound"
    assert first["first-step-wide"].has_fired
    assert [found.id for found in report.problems] == ["overhead-bound"]


def test_time_before_the_first_op_of_a_step_is_no_other_time_of_it() -> None:
    """One step of 10 ms: nothing for 2 ms, then ops on an idle GPU."""
    ops = [each for n in range(20) for each in working_op(2000 + 400 * n, 390)]
    built = trace(step(1, 0, 10_000), *ops)
    costs = {found.id: found.cost for found in check_trace(built, default_scope(built)).findings if found.is_problem}
    assert costs["input-starved"] == pytest.approx(2_000_000, rel=0.05)
    assert (costs["overhead-bound"] or 0) > 5_000_000


def test_the_wait_that_the_verdict_names_costs_what_it_says() -> None:
    """The GPU waits 6 of 10 ms for the first op; for 2 of them the garbage collector runs."""
    ops = [each for n in range(10) for each in working_op(6000 + 400 * n, 390, f"aten::op{n}")]
    built = trace(step(1, 0, 10_000), python("<built-in function collect>", 1000, 2000), *ops)
    report = check_trace(built, default_scope(built))
    costs = {found.id: found.cost for found in report.findings if found.is_problem}
    assert "the GPU waits 60 % of the time" in report.verdicts[0].first
    assert report.problems[0].id == "input-starved"
    assert costs["input-starved"] == pytest.approx(6_000_000, rel=0.02)
    assert costs["gc-pause"] == 0


def test_a_loop_that_the_verdict_names_costs_its_waits_too() -> None:
    """Two thirds of a step are a loop, in a third of which the CPU waits for a result of the GPU."""
    entries = [step(1, 0, 9_000), *(each for n in range(10) for each in working_op(10 + 300 * n, 290, f"aten::op{n}"))]
    for k in range(60):
        at = 3000 + 100 * k
        entries += [*working_op(at, 45, "aten::eq"), *working_op(at + 45, 54, "aten::index")]
        entries.append(runtime("cudaStreamSynchronize", at + 60, 30, 5_000 + k))
    built = trace(*entries)
    report = check_trace(built, default_scope(built))
    assert report.problems[0].id == "op-loop"
    assert report.problems[0].share == pytest.approx(0.665, abs=0.02)
    assert_costs_hold(report)


@pytest.mark.parametrize(("others", "first"), [(85, "overhead-bound"), (40, "written-out")])
def test_ops_written_out_lead_unless_they_are_a_small_part_of_the_wait_for_the_cpu(others: int, first: str) -> None:
    """Two norms of 5 ops: of 95 ops, 11 % of the time, a compiler mends all; of 50 ops they are a fifth."""
    norm = [f"aten::{name}" for name in ("pow", "mean", "add", "rsqrt", "mul")]
    names = [*norm, *(f"aten::op{n}" for n in range(others)), *norm]
    entries = [entry for k, name in enumerate(names) for entry in working_op(100 * k, 99, name)]
    built = trace(step(1, 0, 100 * len(names)), *entries)
    assert check_trace(built, default_scope(built)).problems[0].id == first


def test_what_costs_most_comes_first_though_the_gpu_waits_for_input() -> None:
    """330 µs of a step in the data loader, and 500 µs of products that tensor cores would shorten."""
    loader = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
    program: list[Entry] = []
    for k in range(4):
        program += [step(k + 2, 1000 * k, 995), annotation(loader, 1000 * k, 330)]
        program += op_with_work("aten::mm", 1000 * k + 340, 1000 * k + 350, 500, SGEMM)
        program.append(runtime("cudaDeviceSynchronize", 1000 * k + 360, 490, 900 + k))
    built = trace(*program, header={"deviceProperties": [H200]})
    report = check_trace(built, default_scope(built))
    assert [found.id for found in report.problems[:2]] == ["no-tensor-core", "input-starved"]
    assert report.verdicts[0].pattern == "no-tensor-core"
    assert report.verdicts[0].regime is Regime.MIXED
    assert_costs_hold(report)
