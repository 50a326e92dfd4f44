"""Test `torchprof-tui critical-path` and `trace.critical_path()`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import torchprof_tui
from tests.analysis.rank_path.simulated_ranks import write_late_run
from tests.helpers.json_schemas import find_violation
from tests.helpers.long_run import keep_some
from tests.helpers.paths import SAMPLES
from torchprof_tui.cli import main
from torchprof_tui.trace.core.errors import TraceError

EAGER = str(SAMPLES / "train_gpt_eager.pt.trace.json.gz")
STREAMS = str(SAMPLES / "multi_stream_overlap.pt.trace.json.gz")


def test_the_json_sums_to_the_duration(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["critical-path", STREAMS, "--json", "--top", "2", "--no-cache"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert find_violation(answer) == ""
    assert sum(each["us"] for each in answer["segments"]) == pytest.approx(answer["duration_us"], abs=1e-6)
    assert sum(each["share"] for each in answer["segments"]) == pytest.approx(1)
    assert answer["segments"][0]["kind"] == "kernel: gemm"
    assert answer["duration_us"] > answer["step_us"]  # the GPU goes on after the CPU
    assert len(answer["events"]) == 2
    assert all(each["on_path_ns"] <= each["duration_ns"] for each in answer["events"])
    assert [each["name"] for each in answer["off_path"]] == ["Memcpy HtoD (Pinned -> Device)"]


def test_the_text_names_step_replay_and_kinds(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["critical-path", EAGER, "--step", "3", "--no-cache"]) == 0
    text = capsys.readouterr().out
    assert "ProfilerStep#3: 10.8 ms" in text
    assert "error 0.0 %" in text
    assert "dispatch" in text
    assert "GPU work off the path" in text


def test_a_range_is_followed_instead_of_a_step(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["critical-path", EAGER, "--range", "10ms:20ms", "--no-cache"]
    assert main(words) == 0
    assert "10.0 ms to 20.0 ms: 10.0 ms\n" in capsys.readouterr().out
    assert main([*words, "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert find_violation(answer) == ""
    assert answer["step"] is None
    assert (answer["start_ns"], answer["duration_us"]) == (10_000_000, 10_000)
    with torchprof_tui.open(EAGER) as trace:
        path = trace.critical_path(start_ns=10_000_000, end_ns=20_000_000)
        assert [each["us"] for each in answer["segments"]] == [each.time / 1000 for each in path.shares]
        with pytest.raises(TraceError, match="either a step or a range"):
            trace.critical_path(step=3, start_ns=0)


@pytest.mark.parametrize(
    ("words", "said"),
    keep_some(
        [
            (["--step", "99"], "no step 99: the trace has steps 2 to 4"),
            (["--top", "-1"], "not a number of rows"),
            (["--rank", "7"], "rank"),
            (["--range", "5ms"], "--range 5ms: expected T0:T1"),
            (["--range", "100s:200s"], "nothing was recorded in this range"),
            (["--range", "1:2", "--step", "3"], "not allowed with"),
        ],
        3,
    ),
)
def test_a_wrong_call_is_one_line(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["critical-path", EAGER, *words, "--no-cache"]) == 2
    output = capsys.readouterr()
    assert output.out == ""
    assert said in output.err
    assert output.err.count("\n") == 1


def test_the_api_gives_the_same_answer(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["critical-path", EAGER, "--json", "--no-cache"]) == 0
    answer = json.loads(capsys.readouterr().out)
    with torchprof_tui.open(EAGER) as trace:
        path = trace.critical_path()
        assert [share.label for share in path.shares] == [each["kind"] for each in answer["segments"]]
        assert path.duration / 1000 == answer["duration_us"]
        with pytest.raises(TraceError, match="no step 99"):
            trace.critical_path(step=99)


def test_of_several_ranks_it_is_the_path_of_all(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paths = [str(path) for path in write_late_run(tmp_path)]
    assert main(["critical-path", *paths, "--json", "--no-cache"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert find_violation(answer) == ""
    assert sum(each["us"] for each in answer["ranks"]) == pytest.approx(answer["duration_us"])
    assert answer["ranks"][0]["rank"] == 1
    assert {each["rank"] for each in answer["events"]} == {each["rank"] for each in answer["ranks"]}
    assert [(each["before"], each["after"]) for each in answer["rank_changes"]] == [(1, 0)]
    assert main(["critical-path", *paths, "--no-cache"]) == 0
    said = capsys.readouterr()
    assert "on all ranks, from its start on rank" in said.out
    assert "By rank" in said.out
    assert "2 of 3 ranks on the path; one alone: --rank N" in said.err


def test_one_rank_waits_for_the_late_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paths = [str(path) for path in write_late_run(tmp_path)]
    assert main(["critical-path", *paths, "--rank", "0", "--json", "--no-cache"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert find_violation(answer) == ""
    assert answer["ranks"] == answer["rank_changes"] == []
    assert "waiting for rank 1" in [each["kind"] for each in answer["segments"]]
    assert main(["critical-path", *paths, "--rank", "9", "--no-cache"]) == 2
    assert "no such rank; there are ranks 0, 1, 2" in capsys.readouterr().err
    with torchprof_tui.open(paths) as trace:
        assert trace.critical_path().rank_shares[0].rank == 1
        assert trace.critical_path(rank=0).rank_shares == ()
        with pytest.raises(TraceError, match="no rank 9"):
            trace.critical_path(rank=9)
