"""Test `torchprof-tui learn` without a screen."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.helpers.command_line import call_main, read_error_line, read_json_answer
from tests.helpers.long_run import keep_some
from tests.learn.test_case_file import GOOD, write
from torchprof_tui.commands.common import terminal
from torchprof_tui.commands.common.load import load_specs
from torchprof_tui.commands.open import OpenOptions
from torchprof_tui.commands.open import main as open_command
from torchprof_tui.learn.case_file import Case, list_cases
from torchprof_tui.learn.progress import find_progress_file, note_result


@pytest.fixture(autouse=True)
def own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))


def test_the_list_has_every_case_and_what_was_done(capsys: pytest.CaptureFixture[str]) -> None:
    note_result("wide-step", 2, 3)
    status, out, err = call_main(capsys, "learn", "--list")
    assert (status, err) == (0, "")
    lines = out.splitlines()
    assert [line.split()[0] for line in lines[:-2]] == [case.id for case in list_cases().cases]
    assert next(line for line in lines if line.startswith("wide-step ")).split()[1:4] == ["2", "of", "3"]
    assert lines[-1].startswith(f"1 of {len(lines) - 2} done")
    assert call_main(capsys, "learn") == (0, out, "")  # no terminal


def test_damaged_progress_and_a_broken_case_are_a_line_each(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = find_progress_file()
    assert path is not None
    path.parent.mkdir(parents=True)
    path.write_text('{"wide-step": "\x1b[31m', encoding="utf-8")
    cases = tmp_path / "config" / "torchprof-tui" / "cases"
    cases.mkdir(parents=True)
    write(cases, "title = 1", "broken.toml")
    write(cases, GOOD, "mine.toml")
    status, out, err = call_main(capsys, "learn", "--list")
    assert status == 0
    assert "\nmine " in out
    assert [line.split(": ")[1].rpartition("/")[2] for line in err.splitlines()] == ["broken.toml", "learn.json"]
    assert "\x1b" not in err


def test_a_case_as_text_has_questions_answers_and_numbers(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    status, out, err = call_main(capsys, "learn", write(tmp_path, GOOD), "--text")
    assert (status, err) == (0, "")
    assert out.splitlines() == [
        "Which step is wide?  (sample:matmul_add_64_cold_eager)",
        "",
        "1. Is the first step (216.9 µs) wide?",
        "   1  yes",
        "   2  no",
        "   look: { goes to the step before",
        "   keys: { {",
        "   it is: yes",
        "   2.8 times the last one.",
        "",
        "Now in your trace: torchprof-tui check YOURS",
    ]


def test_the_findings_of_a_trace_as_text(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = call_main(capsys, "learn", "sample:compile_recompiles", "--text")
    assert status == 0
    assert "What limits this program?" in out
    assert "function 0 ran in 3 compiled versions" in " ".join(out.split())


@pytest.mark.parametrize("name", keep_some(["What is only the profiler's?", "what is only", "profilers"], 1))
def test_a_case_is_named_by_its_title_too(capsys: pytest.CaptureFixture[str], name: str) -> None:
    status, out, _ = call_main(capsys, "learn", name, "--text")
    assert status == 0
    assert out.startswith("What is only the profiler's?")


def test_mistakes_are_one_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert (
        "wide-stp: no case of this name or title, and no file (did you mean wide-step?; learn --list lists"
        in read_error_line(capsys, "learn", "wide-stp", "--text")
    )
    assert "What is nowhere: no case of this name or title, and no file (learn --list lists" in read_error_line(
        capsys, "learn", "What is nowhere", "--text"
    )
    assert "--text needs a case" in read_error_line(capsys, "learn", "--text")
    assert "one case or one trace at a time" in read_error_line(capsys, "learn", "a", "b")
    assert "not allowed with" in read_error_line(capsys, "learn", "--text", "--list")
    broken = write(tmp_path, GOOD.replace("ratio > 1.5", "ratio > 100"))
    assert "is not true of" in read_error_line(capsys, "learn", broken, "--text")
    assert "no such sample" in read_error_line(capsys, "learn", "sample:none", "--text").replace(
        "no sample", "no such sample"
    )
    assert "the explorer needs a terminal" in read_error_line(capsys, "learn", "wide-step")


@pytest.mark.parametrize(
    ("word", "trace", "case_id"),
    [
        ("wide", ("sample:matmul_add_64_cold_eager",), "wide-step"),
        ("sample:linear_eager", ("sample:linear_eager",), None),
        (None, (), None),
    ],
)
def test_what_the_app_is_started_with(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    word: str | None,
    trace: tuple[str, ...],
    case_id: str | None,
) -> None:
    started: list[tuple[OpenOptions, bool, Case | None]] = []

    def note(options: OpenOptions, *, learn: bool, case: Case | None) -> int:
        started.append((options, learn, case))
        return 0

    monkeypatch.setattr(open_command, "run", note)
    monkeypatch.setattr(terminal, "find_terminal_problem", str)
    status, _, _ = call_main(capsys, "learn", *([word] if word else []), "--theme", "light")
    assert status == 0
    options, learn, case = started[0]
    assert (options.trace, options.theme, learn) == (trace, "light", True)
    assert (None if case is None else case.id) == case_id


def test_agents_get_the_list_with_what_was_done(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    note_result("wide-step", 2, 3)
    cases = tmp_path / "config" / "torchprof-tui" / "cases"
    cases.mkdir(parents=True)
    write(cases, "title = 1", "broken.toml")
    listing = read_json_answer(capsys, "learn", "--list", "--json")
    assert [case["id"] for case in listing["cases"]] == [case.id for case in list_cases().cases]
    done = {case["id"]: (case["as_expected"], case["asked"]) for case in listing["cases"] if "asked" in case}
    assert done == {"wide-step": (2, 3)}
    assert len(listing["problems"]) == 1
    assert "broken.toml" in listing["problems"][0]
    assert read_json_answer(capsys, "learn", "--json") == listing  # never a screen


def test_agents_get_what_people_read(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Every question of the text, with its answer; numbers as numbers and the events that show it."""
    case = write(tmp_path, GOOD)
    answer = read_json_answer(capsys, "learn", case, "--json")
    text = " ".join(call_main(capsys, "learn", case, "--text")[1].split())
    for question in answer["questions"]:
        for part in (question["ask"], *question["choices"], question["look"], question["answer"], question["tell"]):
            assert " ".join(part.split()) in text
        if question["choices"]:
            assert question["answer"] == question["choices"][question["choice"] - 1]
            assert "number" not in question
    trace = load_specs([answer["sample"]], cache=False).trace
    events = [event for question in answer["questions"] for event in question.get("events", [])]
    assert events
    assert all(0 <= event < len(trace) for event in events)


def test_the_findings_of_a_trace_are_asked_of_agents(capsys: pytest.CaptureFixture[str]) -> None:
    answer = read_json_answer(capsys, "learn", "sample:train_gpt_starved", "--json")
    assert answer["id"] == ""
    assert any("input-bound" in choice for question in answer["questions"] for choice in question["choices"])


def test_text_and_json_exclude_each_other(capsys: pytest.CaptureFixture[str]) -> None:
    assert "--text" in read_error_line(capsys, "learn", "wide-step", "--text", "--json")
