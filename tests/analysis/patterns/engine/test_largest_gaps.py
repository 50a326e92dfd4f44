"""The largest gaps: which, why, between which ops, in which line; of several ranks each with its own line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.helpers.merged_ranks import load_merged_ranks, load_shared_ranks
from tests.helpers.paths import SAMPLES
from tests.helpers.trace_builder import Entry, annotation, cpu, kernel, overhead, python, runtime, step, trace
from torchprof_tui.analysis.dispatch.source_line import SourceLine, SourceLineFinder
from torchprof_tui.analysis.patterns.engine.checker import Checker
from torchprof_tui.analysis.patterns.engine.idle_causes import IdleCause
from torchprof_tui.analysis.patterns.engine.largest_gaps import MAX_GAPS, LargestGap, select_long_gaps
from torchprof_tui.analysis.patterns.verdict.rank_checks import MultiRankChecker
from torchprof_tui.trace.loading.load_in_process import load_trace
from torchprof_tui.trace.model.trace import Trace


def launched(name: str, start: float, corr: int, kernel_at: float, takes: float, call: float = 5) -> list[Entry]:
    """Build an op whose call begins 5 µs after it, and the kernel."""
    return [
        cpu(name, start, call + 10),
        runtime("cudaLaunchKernel", start + 5, call, corr=corr),
        kernel("gemm", kernel_at, takes, corr=corr),
    ]


def four_gaps(*more: Entry) -> Trace:
    """Build five kernels with four gaps between them; times in µs.

    ```
    train.py(10): main     0 …………………………………………………………………………………………………… 1000
      train.py(20): load     110 … 395 (host code)
      train.py(30): slow_op                405 ………… 600 (its op: dispatch)
      train.py(40): launch                             650 ……… 800 (a long call)
    kernels  20..100    402..500    598..650    790..810    815..900
    ```
    """
    return trace(
        step(0, 0, 1000),
        python("train.py(10): main", 0, 1000),
        *launched("aten::first", 5, 1, 20, 80),
        python("train.py(20): load", 110, 285),
        *launched("aten::second", 396, 2, 410, 90),
        python("train.py(30): slow_op", 430, 180),
        cpu("aten::third", 431, 175),
        runtime("cudaLaunchKernel", 595, 5, corr=3),
        kernel("gemm", 600, 50, corr=3),
        python("train.py(40): launch", 640, 160),
        *launched("aten::fourth", 645, 4, 795, 15, call=145),
        *launched("aten::fifth", 801, 5, 818, 100),
        *more,
    )


def describe(gap: LargestGap) -> tuple[int, IdleCause, str, str | None]:
    return gap.duration, gap.cause, gap.place, gap.line.text if gap.line else None


def test_each_gap_names_its_cause_its_place_and_its_line() -> None:
    shown = four_gaps()
    gaps = Checker(shown).list_largest_gaps()
    found = {gap.start: describe(gap) for gap in gaps}
    assert found[100_000] == (
        310_000, IdleCause.HOST, "between aten::first and aten::second", "train.py(20): load",
    )  # fmt: skip
    assert found[500_000] == (
        100_000, IdleCause.DISPATCH, "between aten::second and aten::third", "train.py(30): slow_op",
    )  # fmt: skip
    assert found[650_000] == (
        145_000, IdleCause.LAUNCH, "between aten::third and aten::fourth", "train.py(40): launch",
    )  # fmt: skip
    assert [gap.duration for gap in gaps] == sorted((gap.duration for gap in gaps), reverse=True)
    for gap in gaps:
        assert sum(gap.time_by_cause.values()) == gap.duration
        assert gap.cause == next(iter(gap.time_by_cause))
        assert int(shown.start[gap.next_event]) == gap.start + gap.duration
        assert gap.next_name
        assert gap.rank is None
    assert [describe(gap) for gap in Checker(shown).list_largest_gaps(None, 2)] == [describe(gap) for gap in gaps[:2]]


def test_a_gap_that_was_launched_long_before_names_the_line_of_its_launch() -> None:
    """The thread was elsewhere during the gap: that line did not cause it."""
    shown = trace(
        step(0, 0, 1000),
        python("train.py(1): early", 0, 100),
        *launched("aten::first", 5, 1, 25, 75),
        *launched("aten::second", 40, 2, 500, 400),
        python("train.py(2): later", 105, 800),
    )
    gap = Checker(shown).list_largest_gaps()[0]
    assert (gap.cause, gap.duration) == (IdleCause.QUEUED, 400_000)
    assert gap.line is not None
    assert gap.line.text == "train.py(1): early"


def test_without_stacks_a_gap_has_the_annotation_and_none_without_either() -> None:
    ops = [*launched("aten::first", 5, 1, 20, 80), *launched("aten::second", 400, 2, 420, 90)]
    plain, annotated = trace(step(0, 0, 600), *ops), trace(step(0, 0, 600), annotation("my phase", 1, 590), *ops)
    (gap, *_), (named, *_) = Checker(plain).list_largest_gaps(), Checker(annotated).list_largest_gaps()
    assert gap.line is None
    assert named.line is not None
    assert (named.line.kind, named.line.text, named.line.location) == ("annotation", "my phase", None)


def test_neither_edges_nor_the_profiler_are_gaps_of_the_program() -> None:
    shown = trace(
        step(0, 0, 3000),
        kernel("gemm", 1600, 100),  # launched before the recording: nothing is known of the time before it
        *launched("aten::first", 1700, 1, 1720, 80),
        overhead("Buffer Flush", 1800, 700),
        *launched("aten::second", 2510, 2, 2550, 50),
    )
    checker = Checker(shown)
    every = {int(start) for start in checker.gap_finder.gaps.start}
    found = {gap.start: gap.cause for gap in checker.list_largest_gaps()}
    assert every - found.keys() == {0, 1_800_000, 2_600_000}
    assert set(found.values()) == {IdleCause.QUEUED}


def test_a_bounded_number_of_lines_is_looked_up(monkeypatch: pytest.MonkeyPatch) -> None:
    looked_up = []
    find_line, find_gap_line = SourceLineFinder.find_line, SourceLineFinder.find_gap_line

    def count_line(finder: SourceLineFinder, event: int, read_args: bool = True) -> SourceLine | None:
        looked_up.append(event)
        return find_line(finder, event, read_args)

    def count_gap_line(finder: SourceLineFinder, lane: int, start: int, end: int) -> SourceLine | None:
        looked_up.append(start)
        return find_gap_line(finder, lane, start, end)

    monkeypatch.setattr(SourceLineFinder, "find_line", count_line)
    monkeypatch.setattr(SourceLineFinder, "find_gap_line", count_gap_line)
    entries = [
        entry for k in range(300) for entry in launched("aten::add", 100 * k + 5, k + 1, 100 * k + 25, 10 + k % 7)
    ]
    shown = trace(step(0, 0, 30_000), *entries)
    gaps = Checker(shown).list_largest_gaps(None, 1000)
    assert len(gaps) == MAX_GAPS
    assert len(looked_up) <= 2 * MAX_GAPS


@pytest.mark.parametrize("sample", ["train_gpt_starved", "matmul_add_64_cold_eager", "multi_stream_overlap"])
def test_they_are_the_longest_of_all_gaps(sample: str) -> None:
    checker = Checker(load_trace(str(SAMPLES / f"{sample}.pt.trace.json.gz"), cache=False))
    gaps = checker.view(checker.default_scope).gaps
    known = [
        (end - start)
        for start, end, row, following in zip(
            gaps.start.tolist(), gaps.end.tolist(), gaps.time.tolist(), gaps.next_event.tolist(), strict=True
        )
        if (cause := row.index(max(row))) not in (IdleCause.PROFILER, IdleCause.LEAD_IN)
        and not (cause == IdleCause.UNKNOWN and following < 0)
    ]
    assert [gap.duration for gap in checker.list_largest_gaps(None, 10)] == sorted(known, reverse=True)[:10]


def test_only_long_ones_are_worth_a_line() -> None:
    gaps = Checker(four_gaps()).list_largest_gaps()
    assert [gap.duration for gap in select_long_gaps(gaps, 20_000_000, 5)] == [310_000, 145_000, 100_000]
    assert select_long_gaps(gaps, 20_000_000, 2) == gaps[:2]
    assert select_long_gaps(gaps, 10**12, 5) == []


def test_each_rank_has_its_own_gaps_and_lines(tmp_path: Path) -> None:
    """The same event number means another event on each rank: a line of the wrong rank would be found."""
    paths = []
    for rank, host in enumerate((200, 900)):
        entries = [
            *([python("train.py(1): padding", 0, 2)] * 3 * rank),
            step(0, 0, 2000),
            python(f"rank{rank}.py({rank + 1}): wait", 3, 1990),
            *launched("aten::first", 5, 1, 20, 80),
            *launched(f"aten::after{rank}", 100 + host, 2, 120 + host, 90),
        ]
        document = {"schemaVersion": 1, "distributedInfo": {"rank": rank, "world_size": 2}, "traceEvents": entries}
        paths.append(tmp_path / f"rank{rank}.json")
        paths[-1].write_text(json.dumps(document))
    merged = load_merged_ranks(paths)
    checker = MultiRankChecker(merged)
    gaps = checker.list_largest_gaps(checker.default_scope, 2)
    assert [(gap.rank, gap.duration, gap.line.text if gap.line else None, gap.place) for gap in gaps] == [
        (1, 920_000, "rank1.py(2): wait", "between aten::first and aten::after1"),
        (0, 220_000, "rank0.py(1): wait", "between aten::first and aten::after0"),
    ]
    for gap in gaps:
        event = merged.event(gap.next_event)
        assert (event.lane.rank, event.start) == (gap.rank, gap.start + gap.duration)


def test_the_ranks_of_a_real_run() -> None:
    _, merged = load_shared_ranks("ddp")
    checker = MultiRankChecker(merged)
    gaps = checker.list_largest_gaps(checker.default_scope, 10)
    assert len(gaps) == 10
    for gap in gaps:
        assert merged.event(gap.next_event).lane.rank == gap.rank
    # Rank 1 stands still in each step: the fault that was put into this run.
    assert {(gap.rank, gap.line.text if gap.line else None) for gap in gaps[:3]} == {(1, "slow_host_work")}


@pytest.mark.parametrize(("length", "label"), [(190, "compiling"), (50, "dispatch")])
def test_a_gap_that_compilation_covers_is_labelled_so(length: float, label: str) -> None:
    """In the gap from 500 to 600 µs an op runs; torch.compile works for most of it, or before it only."""
    work = annotation("_compile.compile_inner (dynamo_timed)", 440, length)
    gap = next(gap for gap in Checker(four_gaps(work)).list_largest_gaps() if gap.start == 500_000)
    assert (gap.cause, gap.label) == (IdleCause.DISPATCH, label)
