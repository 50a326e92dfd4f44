"""How a case goes on, without a screen; the progress file; questions made of the findings of a trace."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import torchprof_tui
from tests.helpers.long_run import keep_some
from tests.learn.test_case_file import GOOD, write
from torchprof_tui.learn.case_file import read_case
from torchprof_tui.learn.evidence import CaseError, Evidence
from torchprof_tui.learn.lesson import Lesson, Phase
from torchprof_tui.learn.own_trace import SHARES, build_own_case
from torchprof_tui.learn.progress import find_progress_file, note_result, read_progress

SAMPLE = "sample:matmul_add_64_cold_eager"

NUMBER = """\

[[question]]
ask = "How many times as long?"
number = "ratio"
within = 0.2
look = "see above"
at = { panel = "details" }
tell = "so it is"
"""


def begin(folder: Path, text: str = GOOD + NUMBER) -> Lesson:
    case = read_case(write(folder, text))
    return Lesson(case, Evidence(case, torchprof_tui.open(SAMPLE)))


def test_expect_look_and_read(tmp_path: Path) -> None:
    lesson = begin(tmp_path)
    assert lesson.evidence.rows[0] is not None
    lesson.arrive()  # nothing was asked yet
    for key in ("enter", ".", "backspace", "3"):  # no choice
        lesson.press(key)
    assert lesson.phase is Phase.ASK
    lesson.press("1")
    assert lesson.phase is Phase.LOOK
    assert not any(map(lesson.takes, ("1", ".", "enter", "backspace")))  # they are keys of the lanes now
    lesson.arrive()
    assert (lesson.phase, lesson.describe_answer()) == (Phase.TELL, "right: yes")
    lesson.press("enter")
    assert not lesson.takes("enter")  # nothing is typed
    for key in (".", "5", "backspace", "backspace", "backspace", "2", ".", ".", "8", "9", "backspace"):
        lesson.press(key)
    assert lesson.typed == "2.8"
    lesson.press("enter")
    lesson.go_on()
    assert lesson.describe_answer() == "right (near enough): 2.82"
    lesson.go_on()
    assert (lesson.phase, lesson.describe_end()) == (Phase.DONE, "2 of 2 as expected")


def test_wrong_and_no_answers(tmp_path: Path) -> None:
    lesson = begin(tmp_path)
    lesson.press("2")
    assert lesson.describe_answer() == "you expected no; it is: yes"
    for _ in range(3):
        lesson.go_on()
    assert (lesson.phase, lesson.describe_answer()) == (Phase.LOOK, "it is: 2.82")
    for _ in range(2):
        lesson.go_on()
    assert (lesson.phase, lesson.right, lesson.describe_end()) == (Phase.DONE, [False, None], "0 of 2 as expected")


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("ratio > 1.5", "ratio > 100", "proof: ratio > 100: is not true of sample:matmul_add_64_cold_eager"),
        ("steps[2]", "steps[7]", "values.last: steps[7].duration_ns: list index out of range"),
        ("first / last", "check.verdikt", "values.ratio: check.verdikt: verdikt: no such field in the answer"),
        ("first / last", "row('aten::none').calls", "the table has no such row"),
        ("first / last", "finding('dead')", "finding('dead'): pattern_id"),
        ("first / last", "other.steps", "other: the case has no key against"),
        ("ProfilerStep#2", "ProfilerStep#9", "question 1: at: no event has the name 'ProfilerStep#9'"),
        ('event = "ProfilerStep#2"', 'finding = "recompiles"', "at: recompiles is not in sample:"),
        ("<ratio:x>", "<ratio:time>", None),
    ],
)
def test_what_cannot_be_computed_on_the_sample_is_one_line(
    tmp_path: Path, old: str, new: str, said: str | None
) -> None:
    text = GOOD.replace(old, new)
    assert text != GOOD
    if said is None:
        assert begin(tmp_path, text).evidence.fill("<ratio:time>") == "3 ns"
        return
    with pytest.raises(CaseError) as raised:
        begin(tmp_path, text)
    assert said in str(raised.value)
    assert "\n" not in str(raised.value)


# -- progress ------------------------------------------------------------------------------------------------


@pytest.fixture
def progress(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    path = find_progress_file()
    assert path is not None
    return path


def test_the_best_result_is_kept(progress: Path) -> None:
    assert read_progress() == ({}, "")
    note_result("a", 1, 3)
    note_result("b", 0, 2)
    note_result("a", 3, 3)
    note_result("a", 2, 3)
    results, problem = read_progress()
    assert ({name: str(result) for name, result in results.items()}, problem) == ({"a": "3 of 3", "b": "0 of 2"}, "")
    note_result("a", 2, 4)  # the case has another question now
    assert str(read_progress()[0]["a"]) == "2 of 4"
    assert progress.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize(
    "content",
    [b"", b"[]", b"\xff\xfe", b'{"a": 1}', b'{"a": {"right": -1, "of": 2, "at": 0}}', b"{" * 5_000, b"0" * (2 << 20)],
)
def test_a_damaged_file_is_one_line_and_is_replaced(progress: Path, content: bytes) -> None:
    progress.parent.mkdir(parents=True)
    progress.write_bytes(content)
    results, problem = read_progress()
    assert results == {}
    assert problem.startswith("learn.json: ")
    assert "\n" not in problem
    note_result("a", 1, 1)
    assert str(read_progress()[0]["a"]) == "1 of 1"


def test_a_folder_that_cannot_be_written_is_ignored(progress: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    progress.parent.parent.joinpath("file").write_text("", encoding="utf-8")
    monkeypatch.setenv("XDG_STATE_HOME", str(progress.parent.parent / "file"))
    note_result("a", 1, 1)
    assert read_progress()[0] == {}


# -- an own trace --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sample", keep_some(["matmul_add_64_cold_eager", "train_gpt_starved", "train_images_cpu"], 1))
def test_findings_are_asked_and_the_answers_are_those_of_check(sample: str) -> None:
    trace = torchprof_tui.open(f"sample:{sample}")
    check = trace.check()
    case = build_own_case(trace)
    evidence = Evidence(case, trace)
    regime, *others = case.questions
    assert regime.answer is not None
    assert regime.choices[regime.answer - 1].startswith(f"{check.verdict.regime.value}:")
    assert check.verdict.first in evidence.fill(regime.tell)
    assert 2 <= len(others) <= 7
    for question, rows in zip(others, evidence.rows[1:], strict=True):
        finding = check.finding(question.at.finding)
        assert finding.has_fired
        assert finding.seen in question.tell
        assert rows == finding.events.tolist()
        assert question.answer is not None
        if finding.significant:
            assert question.answer == 1 + sum(finding.share >= limit for limit in SHARES)
        else:
            titles = {each.title: each for each in (*check.patterns, *check.notes)}
            assert [titles[title].has_fired for title in question.choices].index(True) == question.answer - 1
            assert sum(titles[title].has_fired for title in question.choices) == 1
    worst = next(iter(check.problems), None)
    assert worst is None or others[0].at.finding in {found.id for found in check.problems}


def test_a_trace_in_which_nothing_is_found_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "empty.json"
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": []}), encoding="utf-8")
    with pytest.raises(CaseError, match="nothing was found in it that could be asked"):
        build_own_case(torchprof_tui.open(path, cache=False))
