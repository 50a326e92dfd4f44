"""Tests of grouping listed traces into runs by name."""

from __future__ import annotations

import random
from fnmatch import fnmatchcase

import pytest

from torchprof_tui.trace.specs.address import ListedTrace
from torchprof_tui.trace.specs.runs_by_name import group_runs


def listed(*names: str) -> list[ListedTrace]:
    """Listed traces of these names, each a second older than the one before."""
    return [ListedTrace(f"box:{name}", 10 + k, 1000.0 - k) for k, name in enumerate(names)]


def names(*files: str) -> list[list[str]]:
    return [[each.spec.removeprefix("box:") for each in run.traces] for run in group_runs(listed(*files))]


@pytest.mark.parametrize(
    ("files", "runs"),
    [
        (("a/rank1.json", "a/rank0.json"), [["a/rank0.json", "a/rank1.json"]]),
        (("rank10.json", "rank9.json"), [["rank9.json", "rank10.json"]]),  # sorted numerically
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
        # One rank has a single file: the recordings cannot be told apart.
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


def test_run_properties() -> None:
    files = listed("a/rank2.json", "a/rank0.json", "a/rank1.json", "a/old.json")
    (run,) = group_runs(files)
    assert (run.ranks, run.size, run.modified, run.name) == ([0, 1, 2], 33, 1000.0, "box:a/rank*.json")
    assert run.specs == ["box:a/rank*.json"]
    stamped = listed("a/worker0.1700000000001.json", "a/worker1.1700000000009.json")
    assert group_runs(stamped)[0].name == "box:a/worker*.*.json"  # the pattern, not the timestamp of one file
    unknown = [ListedTrace(each.spec, None, 0.0) for each in files]
    assert group_runs(unknown)[0].size is None


@pytest.mark.parametrize(
    "files",
    [
        ("a/rank0.json", "a/rank1.json", "a/rankings.json"),  # the pattern would match it too
        ("a/rank[0].json", "a/rank[1].json"),  # brackets are special in a pattern
        ("a/*/rank0.json", "a/*/rank1.json"),
    ],
)
def test_no_pattern_if_it_would_match_other_files(files: tuple[str, ...]) -> None:
    for run in group_runs(listed(*files)):
        assert run.pattern == ""
        assert run.specs == [each.spec for each in run.traces]


def test_pattern_matches_exactly_its_run() -> None:
    """Random names, matched per path component like in a shell, where `*` does not match a slash."""
    rng = random.Random(11)
    for _ in range(300):
        files = listed(
            *{
                f"{rng.choice('ab')}/{rng.choice(('rank', 'worker', 'r'))}{rng.randrange(3)}"
                f"{rng.choice(('', '.1700000001', '_1700000002', '[x]'))}{rng.choice(('.json', '.json.gz'))}"
                for _ in range(rng.randrange(1, 9))
            }
        )
        for run in group_runs(files):
            assert len(set(run.ranks)) == len(run.traces) >= 2
            if run.pattern:
                matched = [
                    each.spec
                    for each in files
                    if len(each.spec.split("/")) == len(run.pattern.split("/"))
                    and all(map(fnmatchcase, each.spec.split("/"), run.pattern.split("/")))
                ]
                assert sorted(matched) == sorted(each.spec for each in run.traces)
