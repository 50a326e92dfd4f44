"""The section in which idle time changed: sums over all gaps and both sides, not the longest gap of one."""

from __future__ import annotations

import pytest

from tests.analysis.compare.test_account import analyse_sample
from tests.helpers.trace_builder import Entry, annotation, cpu, kernel, runtime, step, trace
from torchprof_tui.analysis.compare.account import PartChange, build_account
from torchprof_tui.analysis.compare.idle_sections import find_changed_section, measure_gaps_in_section
from torchprof_tui.analysis.compare.part_line import find_part_line
from torchprof_tui.analysis.compare.side_analysis import SideAnalysis
from torchprof_tui.analysis.patterns.engine.idle_causes import IdleCause

DISPATCH, HOST = IdleCause.DISPATCH, IdleCause.HOST


def analyse_steps(forward: float, optimizer: float, ops: int = 20) -> SideAnalysis:
    """Three steps: `ops` short ops in "forward" and one long op in "optimizer", each followed by its kernel."""
    entries: list[Entry] = []
    for number in range(3):
        time = number * 10_000.0
        entries += [
            step(number, time, 9_000),
            annotation("forward", time + 10, 4_000),
            annotation("optimizer", time + 4_100, 4_000),
        ]
        spans = [(time + 20 + 190 * index, forward) for index in range(ops)] + [(time + 4_110, optimizer)]
        for index, (start, duration) in enumerate(spans):
            call = number * 100 + index + 1
            entries += [
                cpu("aten::add", start, duration),
                runtime("cudaLaunchKernel", start + duration - 5, 5, call),
                kernel("add_kernel", start + duration + 1, 2, call),
            ]
    return SideAnalysis(trace(*entries), "side")


def find_place(a: SideAnalysis, b: SideAnalysis, part_id: str) -> str | None:
    part = next(part for part in build_account(a, b).parts if part.id == part_id)
    line = find_part_line(a, b, part)
    return None if line is None else line.text


def test_many_short_gaps_count_as_much_as_one_long_one() -> None:
    """The longest gap lies in the optimizer on both sides; what grew lies in forward."""
    a, b = analyse_steps(forward=50, optimizer=2_000), analyse_steps(forward=120, optimizer=2_000)
    assert find_changed_section(a, b, DISPATCH) == "forward"
    assert find_changed_section(b, a, DISPATCH) == "forward"
    assert find_place(a, b, "idle:dispatch") == find_place(b, a, "idle:dispatch") == "forward"


def test_where_it_shrinks_while_the_part_grows_is_not_named() -> None:
    a, b = analyse_steps(forward=50, optimizer=2_000), analyse_steps(forward=120, optimizer=1_500)
    assert find_changed_section(a, b, DISPATCH) == "forward"
    assert measure_gaps_in_section(b.view, DISPATCH, "optimizer").sum() < (
        measure_gaps_in_section(a.view, DISPATCH, "optimizer").sum()
    )


def test_changes_are_measured_by_section() -> None:
    a, b = analyse_steps(forward=50, optimizer=1_000), analyse_steps(forward=100, optimizer=2_000)
    for name in ("forward", "optimizer"):
        times = [measure_gaps_in_section(side.view, DISPATCH, name).sum() / 3_000 for side in (a, b)]
        assert times[1] - times[0] == pytest.approx(1_000, rel=0.06)
    assert find_changed_section(a, a, DISPATCH) is None


def test_gaps_of_sections_sum_to_at_most_the_whole() -> None:
    side = analyse_steps(forward=50, optimizer=2_000)
    parts = [measure_gaps_in_section(side.view, DISPATCH, name) for name in ("forward", "optimizer", "none")]
    assert parts[2].sum() == 0
    assert (parts[0] + parts[1] <= measure_gaps_in_section(side.view, DISPATCH, None)).all()


@pytest.mark.parametrize("cause", [DISPATCH, HOST])
def test_the_gpt_pair_equals_what_was_computed_by_hand_from_its_json(cause: IdleCause) -> None:
    """ms a step, backward, forward and optimizer: by an independent script over the raw events."""
    a, b = analyse_sample("train_gpt_eager"), analyse_sample("train_gpt_compile")
    by_hand = {DISPATCH: (1.87, 0.66, 0.28), HOST: (-0.44, -0.37, 0.23)}[cause]
    for name, change in zip(("backward", "forward", "Optimizer.step#AdamW.step"), by_hand, strict=True):
        measured = [measure_gaps_in_section(side.view, cause, name).sum() / 3e6 for side in (a, b)]
        assert measured[1] - measured[0] == pytest.approx(change, abs=0.006)
    part = PartChange(f"idle:{cause.id}", "", 1, 2 if cause is DISPATCH else 0, None)
    line = find_part_line(a, b, part)
    assert line is not None
    assert line.text == "backward"


def test_an_asynchronous_copy_of_pinned_memory_does_not_wait() -> None:
    compiled = analyse_sample("train_gpt_compile")
    host = compiled.checker.gap_finder.host
    assert not len(host.blocking_copies)
    assert not any(part.id == "idle:sync" for part in build_account(compiled, analyse_sample("train_gpt_eager")).parts)
