"""Which files of a listing are one run's ranks: by names, against what a person would say of them."""

from __future__ import annotations

import random
from fnmatch import fnmatchcase

import pytest

from torchprof_tui.trace.specs.address import ListedTrace
from torchprof_tui.trace.specs.rank_groups import group_runs


def listed(*names: str) -> list[ListedTrace]:
    """Each a second older than the one before."""
    return [ListedTrace(f"box:{name}", 10 + k, 1000.0 - k) for k, name in enumerate(names)]


def names(*files: str) -> list[list[str]]:
    return [[each.spec.removeprefix("box:") for each in run.traces] for run in group_runs(listed(*files))]


@pytest.mark.parametrize(
    ("files", "runs"),
    [
        (("a/rank1.json", "a/rank0.json"), [["a/rank0.json", "a/rank1.json"]]),
        (("rank10.json", "rank9.json"), [["rank9.json", "rank10.json"]]),  # by number, not by letter
        (("rank0.json", "other.json"), []),  # one rank is no run
        (("a/rank0.json", "b/rank1.json"), []),  # two folders, two runs
        (("rank0.json", "rank1.json.gz"), []),
        (("train_rank0.json", "eval_rank1.json"), []),
        (  # one run's ranks end at slightly different times
            ("worker0.1694128201545.pt.trace.json", "worker1.1694128201556.pt.trace.json"),
            [["worker0.1694128201545.pt.trace.json", "worker1.1694128201556.pt.trace.json"]],
        ),
        (  # profiled twice
            (
                "w/worker0.1700000009.json",
                "w/worker1.1700000001.json",
                "w/worker1.1700000010.json",
                "w/worker0.1700000002.json",
            ),
            [
                ["w/worker0.1700000009.json", "w/worker1.1700000010.json"],
                ["w/worker0.1700000002.json", "w/worker1.1700000001.json"],
            ],
        ),
        # Twice, but for one rank: nobody can say which belong together.
        (("worker0.1700000000.json", "worker1.1700000001.json", "worker1.1700000010.json"), []),
        (
            ("rank0_step12.json", "rank1_step12.json", "rank0_step20.json", "rank1_step20.json"),
            [["rank0_step12.json", "rank1_step12.json"], ["rank0_step20.json", "rank1_step20.json"]],
        ),
    ],
)
def test_runs_by_name(files: tuple[str, ...], runs: list[list[str]]) -> None:
    assert names(*files) == runs
    shuffled = random.Random(3).sample(files, len(files))
    assert sorted(names(*shuffled)) == sorted(runs)


def test_what_a_run_says_of_itself() -> None:
    files = listed("a/rank2.json", "a/rank0.json", "a/rank1.json", "a/old.json")
    (run,) = group_runs(files)
    assert (run.ranks, run.size, run.modified, run.name) == ([0, 1, 2], 33, 1000.0, "box:a/rank*.json")
    assert run.specs == ["box:a/rank*.json"]
    stamped = listed("a/worker0.1700000000001.json", "a/worker1.1700000000009.json")
    assert group_runs(stamped)[0].name == "box:a/worker*.*.json"  # what it opens, not the first one's time
    unknown = [ListedTrace(each.spec, None, 0.0) for each in files]
    assert group_runs(unknown)[0].size is None


@pytest.mark.parametrize(
    "files",
    [
        ("a/rank0.json", "a/rank1.json", "a/rankings.json"),  # the pattern would take it along
        ("a/rank[0].json", "a/rank[1].json"),  # brackets mean something else in a pattern
        ("a/*/rank0.json", "a/*/rank1.json"),
    ],
)
def test_where_a_pattern_would_mean_others_the_files_are_named(files: tuple[str, ...]) -> None:
    for run in group_runs(listed(*files)):
        assert run.pattern == ""
        assert run.specs == [each.spec for each in run.traces]


def test_a_pattern_means_its_run_and_nothing_else() -> None:
    """Whatever names there are: a shell over there, which knows no folders in a star, finds the same."""
    chance = random.Random(11)
    for _ in range(300):
        files = listed(
            *{
                f"{chance.choice('ab')}/{chance.choice(('rank', 'worker', 'r'))}{chance.randrange(3)}"
                f"{chance.choice(('', '.1700000001', '_1700000002', '[x]'))}{chance.choice(('.json', '.json.gz'))}"
                for _ in range(chance.randrange(1, 9))
            }
        )
        for run in group_runs(files):
            assert len(set(run.ranks)) == len(run.traces) >= 2
            if run.pattern:
                meant = [
                    each.spec
                    for each in files
                    if len(each.spec.split("/")) == len(run.pattern.split("/"))
                    and all(map(fnmatchcase, each.spec.split("/"), run.pattern.split("/")))
                ]
                assert sorted(meant) == sorted(each.spec for each in run.traces)
