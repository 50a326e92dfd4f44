"""`export --folded` and `--speedscope`: what is printed, written and refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.helpers.golden_files import load_sample
from torchprof_tui.analysis.flame.flame_tree import FoldTime
from torchprof_tui.analysis.flame.fold import select_timed_events
from torchprof_tui.cli import main

SAMPLE = "sample:train_gpt_stack_memory"


def sum_folded(text: str) -> int:
    return sum(int(line.rpartition(" ")[2]) for line in text.splitlines())


@pytest.mark.parametrize("by", ["stack", "module", "op"])
@pytest.mark.parametrize("time", ["gpu", "cpu"])
def test_prints_folded_stacks_that_sum_to_the_self_time(by: str, time: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", SAMPLE, "--folded", "--by", by, "--time", time]) == 0
    expected = select_timed_events(load_sample("train_gpt_stack_memory"), FoldTime(time))[1].sum()
    assert sum_folded(capsys.readouterr().out) == expected


def test_steps_and_ranges_restrict_the_events(capsys: pytest.CaptureFixture[str]) -> None:
    sums = {}
    for options in ((), ("--step", "2"), ("--step", "3"), ("--range", "0:10ms")):
        assert main(["export", SAMPLE, "--folded", "--by", "op", *options]) == 0
        sums[options[:2]] = sum_folded(capsys.readouterr().out)
    assert 0 < sums["--step", "2"] < sums[()]
    assert sums["--step", "2"] + sums["--step", "3"] <= sums[()]
    assert 0 < sums["--range", "0:10ms"] <= sums[()]


@pytest.mark.parametrize("name", ["a.folded", "a.speedscope.json", "a.txt", "b.json"])
def test_writes_a_file_by_its_name_or_flag(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flags = {"a.txt": ["--folded"], "b.json": ["--speedscope"]}.get(name, [])
    out = tmp_path / name
    assert main(["export", SAMPLE, *flags, "-o", str(out), "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["count"] > 10
    text = out.read_text(encoding="utf-8")
    if name.endswith(".json"):
        document = json.loads(text)
        assert document["name"].startswith("train_gpt_stack_memory")
        assert len(document["profiles"][0]["samples"]) == answer["count"]
        main(["export", SAMPLE, "--speedscope"])
        assert json.loads(capsys.readouterr().out) == document
    else:
        assert text.count("\n") == answer["count"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["sample:matmul_add_64_cold_eager", "--folded"], "record it with with_stack=True (or: --by op)"),
        ([SAMPLE], "-o OUT is missing"),
        ([SAMPLE, "--csv"], "--csv needs a file"),
        ([SAMPLE, "--csv", "-o", "a.csv", "--by", "op"], "--by works only with --folded and --speedscope"),
        ([SAMPLE, "--folded", "--json"], "--json describes the file"),
        ([SAMPLE, "--folded", "--step", "99"], "no step 99 in this trace (it has 2 to 3)"),
        ([SAMPLE, "--folded", "--range", "100s:101s"], "no GPU time in this range"),
        ([SAMPLE, "--folded", "-o", "a.json"], "ends in .folded or .txt"),
    ],
)
def test_says_in_one_line_what_is_wrong(
    options: list[str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["export", *options]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert not list(tmp_path.iterdir())
