"""Test which runs of repeats are folded, what stays, and the quantiles of the rest."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from tests.analysis.repetition.test_repetitions import decode, open_shared
from tests.helpers.trace_builder import kernel, trace
from torchprof_tui.analysis.repetition.repeat_fold import build_fold, list_levels, list_step_runs
from torchprof_tui.analysis.repetition.repetitions import find_repetitions
from torchprof_tui.trace.model.trace import Step


def steps_of(*rows: tuple[str, int, int]) -> list[Step]:
    return [Step(name, number, number, start, end - start) for number, (name, start, end) in enumerate(rows)]


def test_recorded_steps_of_one_kind_that_follow_each_other_are_a_run() -> None:
    runs = list_step_runs(
        steps_of(
            ("ProfilerStep#3", 0, 10),
            ("ProfilerStep#4", 11, 20),
            ("ProfilerStep#5", 20, 35),
            ("ProfilerStep#9", 90, 100),  # after a pause longer than a step
            ("ProfilerStep#10", 100, 110),
        )
    )
    assert [(run.name, run.bounds.tolist(), run.numbers) for run in runs] == [
        ("step", [0, 11, 20, 35], (0, 1, 2)),
        ("step", [90, 100, 110], (3, 4)),
    ]
    assert (runs[0].median, runs[0].slowest, runs[0].find(19), runs[0].find(35)) == (0, 2, 1, -1)


def test_serving_steps_of_another_kind_end_a_run() -> None:
    names = ["step[DECODE bs=32]", "step[DECODE bs=31]", "step[EXTEND bs=1 toks=9]", "step[DECODE bs=32]"]
    runs = list_step_runs(steps_of(*((name, 10 * k, 10 * k + 9) for k, name in enumerate(names))))
    assert [(run.name, run.numbers) for run in runs] == [("decode", (0, 1))]


def test_one_repeat_stays_and_the_seams_count_the_others() -> None:
    ends = [10, 20, 34, 44, 60]
    fold = build_fold([list_step_runs(steps_of(*((f"ProfilerStep#{k}", 10 * k, ends[k]) for k in range(2))))])
    assert fold is not None
    assert [(seam.start, seam.end, seam.count) for seam in fold.seams] == [(10, 20, 1)]
    starts = [0, 10, 20, 34, 44, 60]
    run = list_step_runs(steps_of(*((f"ProfilerStep#{k}", a, b) for k, (a, b) in enumerate(pairwise(starts)))))
    fold = build_fold([run], {(0, 0): 2})
    assert fold is not None
    assert [(seam.start, seam.end, seam.count, seam.p50) for seam in fold.seams] == [
        (0, 20, 2, 10.0),
        (34, 60, 2, 13.0),
    ]
    assert fold.seams[1].p95 == pytest.approx(np.quantile([10, 16], 0.95))
    assert list(fold.time.starts) == [0, 34]
    assert fold.time.position(34) - fold.time.position(20) == 14  # the shown one has its full length


def test_layers_fold_inside_the_token_that_is_shown() -> None:
    made = decode(tokens=8, layers=5)
    found = find_repetitions(made)
    levels = list_levels(found.list_steps(), found)
    assert [[len(run) for run in runs] for runs in levels] == [[8], [5] * 8]
    fold = build_fold(levels)
    assert fold is not None
    assert [[len(run) for run in runs] for runs in fold.levels] == [[8], [5]]
    token, layer = fold.levels[0][0], fold.levels[1][0]
    low, high = token.bounds[fold.shown[0][0]], token.bounds[fold.shown[0][0] + 1]
    assert low <= layer.start < layer.end <= high
    assert sorted(seam.count for seam in fold.seams) == [2, 2, 3, 4]
    assert [seam.start for seam in fold.seams] == list(fold.time.starts)
    assert fold.hidden_count == 7 + 4


def test_nothing_repeats_nothing_folds() -> None:
    found = find_repetitions(trace(kernel("k", 0, 5), kernel("l", 6, 5)))
    assert list_levels([], found) == []
    assert build_fold([]) is None
    assert build_fold([[]]) is None


def test_tokens_within_recorded_steps_of_a_real_trace() -> None:
    made = open_shared("llama_decode_eager.pt.trace.json.gz")
    levels = list_levels(made.steps, find_repetitions(made))
    assert [len(run) for run in levels[0]] == [2]
    assert [len(run) for run in levels[1]] == [16, 16]
    assert all(run.start >= made.steps[k].start for k, run in enumerate(levels[1]))
