"""Compare clocks and matched collectives of drawn runs, in which times tie and ranks lack some, with what is stored."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import astuple, fields
from pathlib import Path
from random import Random

from tests.helpers.merged_ranks import load_merged_ranks
from tests.helpers.rank_traces import BASE, Collective, Run
from tests.helpers.stored_answers import compare_answers, join, join_array
from torchprof_tui.trace.core.problems import LOST_RANK
from torchprof_tui.trace.model.ranks import LostRank
from torchprof_tui.trace.ranks.collective_matching import match_collectives, read_collectives
from torchprof_tui.trace.ranks.merge import OpenedRank, merge_ranks

OPERATIONS = ("allreduce", "_allgather_base", "alltoall", "send", "broadcast")


def draw_run(seed: int) -> Run:
    """Draw a run of two to four ranks; only `random.random` is used, see `dense_traces`."""
    random = Random(seed)

    def pick(count: int) -> int:
        return int(random.random() * count)

    ranks, time, steps = 2 + pick(3), 1000.0, []
    for _ in range(1 + pick(4)):
        collectives = []
        for _ in range(pick(5)):
            arrive: list[float | None] = [time + 10 * pick(4) for _ in range(ranks)]
            if not pick(4):
                arrive[pick(ranks)] = None
            operation, group = OPERATIONS[pick(5)], ("0", "1", "")[pick(3)]
            jitter = [0.0, 0.0, 1.0, 5.0][: ranks - 1] if pick(2) else []
            one = Collective(
                arrive, 50.0, (1024, 1024, 2048)[pick(3)], group, operation, [*jitter, 0.0] if jitter else ()
            )
            collectives.append(one)
            time = one.end + 20
        steps.append(collectives)
        time += 1000
    run = Run(ranks, steps, says_group=bool(pick(5)))
    run.shifts = [(0.0, 0.0, 999.0, 1000.0, 1001.0)[pick(5)] for _ in range(ranks)]
    if pick(3):
        run.bases = [BASE + (0, 1, 1000, 86_400 * 10**9)[pick(4)] for _ in range(ranks)]
    if pick(2):
        run.first_step = [pick(2) for _ in range(ranks)]
    return run


def describe_run(seed: int, folder: Path) -> Iterator[str]:
    whole = load_merged_ranks(draw_run(seed).write(folder))
    yield f"run {seed}: {whole.span} {join_array(whole.start)} {join_array(whole.lane)} {join_array(whole.correlation)}"
    yield from (f" {lane.label}: {lane.first} {lane.last} {lane.row_base} {lane.rank}" for lane in whole.lanes)
    assert whole.merged_ranks is not None
    for rank in whole.merged_ranks.all:
        yield f" rank {rank.number}: {astuple(rank.clock)}"
    matched = whole.merged_ranks.matched_collectives
    yield from (f" {column.name} {join(getattr(matched, column.name).tolist())}" for column in fields(matched)[:-1])
    yield f" texts {matched.texts}"
    yield from (f" {problem.kind} {problem.count} {problem.example}" for problem in whole.problems)
    models = [rank.trace for rank in whole.merged_ranks.all]
    for order in (models, models[::-1]):  # the matches do not depend on which rank comes first
        assert len(match_collectives(order, [read_collectives(model) for model in order])) == len(matched)


def test_answers_of_drawn_runs(tmp_path: Path) -> None:
    lines = []
    for seed in range(14):
        folder = tmp_path / str(seed)
        folder.mkdir()
        lines += list(describe_run(seed, folder))
    compare_answers("ranks", lines)


def test_ranks_that_are_lost_are_reported(tmp_path: Path) -> None:
    models = [rank.trace for rank in load_merged_ranks(draw_run(1).write(tmp_path)).all_ranks]
    opened = [OpenedRank(number, "rank", model, read_collectives(model)) for number, model in enumerate(models)]
    lost = [LostRank(7, "rank7.json", "cut short"), LostRank(None, "x.json", "not a trace")]
    found = [each for each in merge_ranks(opened, "ranks", lost).problems if each.kind == LOST_RANK]
    assert [(each.count, each.example) for each in found] == [(2, "rank 7: cut short")]
