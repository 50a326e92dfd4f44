"""Test `table --of repetitions`: rows as text, CSV and JSON, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.helpers.command_line import call_main, read_error_line, read_json_answer
from tests.helpers.json_schemas import check_answer
from torchprof_samples import find

TRAINING = find("train_gpt_stack_memory").path


def test_steps_and_layers_of_a_training_run(capsys: pytest.CaptureFixture[str]) -> None:
    answer = read_json_answer(capsys, "table", TRAINING, "--of", "repetitions", "--json")
    check_answer(answer, "table", "RepetitionTable")
    outer, *inner = answer["totals"]["patterns"]
    assert (outer["repetitions"], outer["is_unit"], outer["parent"]) == (2, True, None)
    assert inner
    assert {pattern["parent"] for pattern in inner} == {outer["label"]}
    assert answer["row_count"] == len(answer["rows"])
    medians = [row["p50_us"] for row in answer["rows"]]
    assert medians == sorted(medians, reverse=True)
    _, out, _ = call_main(capsys, "table", TRAINING, "--of", "repetitions", "--limit", "3")
    assert out.splitlines()[0].split()[:3] == ["name", "calls", "kernels"]
    assert all(note in out.replace("\n", " ") for note in (f"{outer['label']}: 2 × ", "one every"))
    _, csv, _ = call_main(capsys, "table", TRAINING, "--of", "repetitions", "--csv")
    assert csv.splitlines()[0].startswith("name,calls,events,total_us,p50_us,p95_us")


def test_a_trace_without_a_repetition(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = call_main(capsys, "table", "sample:linear_eager", "--of", "repetitions")
    assert status == 0
    assert out.startswith("Repetitions: no repetition was found in the order of the kernels")
    answer = read_json_answer(capsys, "table", "sample:linear_eager", "--of", "repetitions", "--json")
    check_answer(answer, "table", "RepetitionTable")
    assert answer["totals"]["patterns"] == []
    assert "no repetition" in answer["cannot_tell"]


@pytest.mark.parametrize("more", [("--step", "1"), ("--by", "module"), ("--flops",)])
def test_what_needs_the_table_of_calls_is_refused(
    more: tuple[str, ...], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert "--of repetitions" in read_error_line(capsys, "table", TRAINING, "--of", "repetitions", *more)
