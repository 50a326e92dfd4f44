"""Test `torchprof-tui what-if` and `trace.what_if()`."""

from __future__ import annotations

import json

import pytest

import torchprof_tui
from tests.helpers.json_schemas import find_violation
from tests.helpers.long_run import keep_some
from tests.helpers.paths import SAMPLES
from torchprof_tui.answers.record import as_fields
from torchprof_tui.cli import main
from torchprof_tui.trace.core.errors import TraceError

EAGER = str(SAMPLES / "train_gpt_eager.pt.trace.json.gz")
STARVED = str(SAMPLES / "train_gpt_starved.pt.trace.json.gz")
RANKS = str(SAMPLES / "train_gpt_2ranks")


def ask(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, object]:
    assert main(["what-if", *words, "--json", "--no-cache"]) == 0
    answer: dict[str, object] = json.loads(capsys.readouterr().out)
    assert find_violation(answer) == ""
    return answer


def test_the_json_has_the_replay_all_changes_and_each(capsys: pytest.CaptureFixture[str]) -> None:
    answer = ask(capsys, STARVED, "--set", "dataloader=0", "--set", "launch=graph")
    assert answer["replay_error"] == 0
    assert answer["trusted"] is True
    each = answer["scenarios"]
    assert isinstance(each, list)
    assert [alone["set"] for alone in each] == ["dataloader=0", "launch=graph"]
    assert answer["predicted_us"] < min(alone["predicted_us"] for alone in each)
    assert answer["speedup"] == pytest.approx(answer["before_us"] / answer["predicted_us"])  # type: ignore[operator]
    path = answer["path"]
    assert isinstance(path, list)
    assert sum(part["share"] for part in path) == pytest.approx(1)
    assert (answer["next"]["name"], answer["next"]["kind"]) == (path[0]["kind"], path[0]["resource"])


def test_what_check_found_is_mended(capsys: pytest.CaptureFixture[str]) -> None:
    mended = ask(capsys, STARVED, "--set", "pattern=input-starved")
    assert mended["predicted_us"] == ask(capsys, STARVED, "--set", "dataloader=0")["predicted_us"]


def test_several_ranks_are_joined_and_one_can_be_asked_about(capsys: pytest.CaptureFixture[str]) -> None:
    assert ask(capsys, RANKS, "--set", "late-rank=0")["ranks"] == [0, 1]
    alone = ask(capsys, RANKS, "--rank", "1", "--set", "cpu=0.5")
    assert alone["ranks"] == [1]
    assert alone["rank"] is None


def test_the_text_has_replay_times_and_what_limits(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["what-if", EAGER, "--set", "cpu=0.5", "--set", "gpu=0.5", "--no-cache"]) == 0
    text = capsys.readouterr().out
    assert "ProfilerStep#3: 10.8 ms; replay of the unchanged graph: 10.8 ms, error 0.0 %" in text
    assert "nothing changed" in text
    assert "cpu=0.5 and gpu=0.5" in text
    assert "Then limited by CPU dispatch; the next bottleneck: dispatch" in text
    assert main(["what-if", EAGER, "--no-cache"]) == 0
    assert "--set 'class=gemm*0.5'" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "said"),
    keep_some(
        [
            (["--set", "class=gemm"], "no factor"),
            (["--set", "sync=0"], "no blocking call in this step"),
            (["--set", "pattern=x"], "no pattern 'x'"),
            (["--set", "pattern=input-starved"], "did not find it"),
            (["--set", "pattern=compute-bound"], "did not find it"),
            (["--set", "late-rank=0"], "several ranks"),
            (["--step", "99"], "no step 99: the trace has steps 2 to 4"),
            (["--rank", "7"], "no such rank"),
        ],
        3,
    ),
)
def test_a_wrong_call_is_one_line(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["what-if", EAGER, *words, "--no-cache"]) == 2
    output = capsys.readouterr()
    assert output.out == ""
    assert said in output.err
    assert output.err.count("\n") == 1


def test_the_api_gives_the_same_answer(capsys: pytest.CaptureFixture[str]) -> None:
    answer = ask(capsys, EAGER, "--set", "op=aten::addmm*0.5")
    with torchprof_tui.open(EAGER) as trace:
        forecast = trace.what_if(["op=aten::addmm*0.5"])
        assert as_fields(forecast) == answer
        with pytest.raises(TraceError, match="unknown scenario"):
            trace.what_if(["faster"])
