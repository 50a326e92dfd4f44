"""What is wrong with a file of a case is one line that names the file and the place in it."""

from __future__ import annotations

from pathlib import Path

import pytest

from torchprof_tui.learn.case_file import list_cases, read_case
from torchprof_tui.trace.core.errors import UnreadableFileError

GOOD = """\
title = "Which step is wide?"
sample = "matmul_add_64_cold_eager"
own = "torchprof-tui check YOURS"

[values]
first = "steps[0].duration_ns"
last = "steps[2].duration_ns"
ratio = "first / last"

[[question]]
ask = "Is the first step (<first:time>) wide?"
choices = ["yes", "no"]
answer = 1
proof = "ratio > 1.5"
look = "{ goes to the step before"
keys = "{ {"
at = { event = "ProfilerStep#2" }
tell = "<ratio:x> times the last one."
"""


def write(folder: Path, text: str, name: str = "mine.toml") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def test_a_file_is_read(tmp_path: Path) -> None:
    case = read_case(write(tmp_path, GOOD))
    assert (case.id, case.title, case.sample, case.against) == (
        "mine",
        "Which step is wide?",
        "sample:matmul_add_64_cold_eager",
        "",
    )
    assert [question.answer for question in case.questions] == [1]


def test_a_trace_beside_the_file_is_found_from_anywhere(tmp_path: Path) -> None:
    case = read_case(write(tmp_path, GOOD.replace('"matmul_add_64_cold_eager"', '"./mine.json.gz"')))
    assert Path(case.sample) == tmp_path / "mine.json.gz"


EVENT = 'event = "ProfilerStep#2"'

WRONG = {
    "not TOML": ("title =", "title", "not TOML"),
    "no title": ("title =", "#", "title is missing"),
    "an unknown key": ("answer =", "answr =", "question 1: answr: no such key"),
    "an unknown key of at": ("{ event =", "{ evnt =", "question 1.at: evnt: no such key"),
    "a wrong type": ("answer = 1", 'answer = "1"', "question 1.answer is not a whole number"),
    "an answer that is no choice": ("answer = 1", "answer = 3", "question 1: answer: not one of its 2 choices"),
    "no proof": ("proof =", "# proof =", "question 1: proof: is missing; it says when the answer is right"),
    "neither choices nor number": ("choices =", "#", "question 1: needs either choices or number"),
    "no place to look": (EVENT, "", "question 1: at: names no event, finding, panel or screen"),
    "nth of nothing": (EVENT, 'panel = "chain", nth = 1', "question 1: at: nth needs an event"),
    "no such panel": (EVENT, 'panel = "chian"', "question 1.at.panel: 'chian' is none of details, chain, "),
    "a comparison with nothing": (EVENT, 'screen = "diff"', "needs the key against"),
    "a value that is not there": ("<ratio:x>", "<ratoi:x>", "question 1: tell: <ratoi:x>: no such value"),
    "a format that is not there": ("<ratio:x>", "<ratio:%%>", "question 1: tell: <ratio:%%>: the formats are time"),
    "a value that is used before": (
        "first / last",
        "later",
        "values.ratio: later: later: no value, answer or function",
    ),
    "a name that is taken": ("ratio", "steps", "values.steps: is the name of an answer or a function"),
    "code": ("first / last", "__import__('os')", "values.ratio: __import__('os'): __import__: no value, answer or"),
    "a lambda": ("first / last", "(lambda: 1)()", "not possible here"),
    "no expression": ("first / last", "first /", "values.ratio: first /: not an expression"),
    "keywords": ("first / last", "round(first, ndigits=1)", "not possible here"),
}
"""What of the good file is replaced by what, and what is said about that, by what is wrong."""


@pytest.mark.parametrize("what", WRONG)
def test_a_mistake_is_one_line_with_its_place(what: str, tmp_path: Path) -> None:
    old, new, said = WRONG[what]
    assert old in GOOD
    with pytest.raises(UnreadableFileError) as raised:
        read_case(write(tmp_path, GOOD.replace(old, new)))
    line = str(raised.value)
    assert "\n" not in line
    assert line.startswith(f"{tmp_path}/mine.toml: ")
    assert said in line


def test_a_missing_file_and_one_that_is_too_large(tmp_path: Path) -> None:
    with pytest.raises(UnreadableFileError, match="No such file"):
        read_case(tmp_path / "none.toml")
    with pytest.raises(UnreadableFileError, match="larger than 64 KiB"):
        read_case(write(tmp_path, GOOD + "#" * 70_000))


def test_a_users_case_is_listed_replaces_one_of_its_name_and_may_be_broken(tmp_path: Path) -> None:
    program, own = tmp_path / "program", tmp_path / "own"
    program.mkdir()
    own.mkdir()
    write(program, GOOD)
    write(program, "order = 5\n" + GOOD, "early.toml")
    write(own, GOOD.replace("Which step", "Mine: which step"))
    write(own, "title = 1", "broken.toml")
    write(own, GOOD, ".hidden.toml")
    found = list_cases([program, own, tmp_path / "none"])
    assert [(case.id, case.title) for case in found.cases] == [
        ("early", "Which step is wide?"),
        ("mine", "Mine: which step is wide?"),
    ]
    assert [problem.partition(": ")[0] for problem in found.problems] == [f"{own}/broken.toml"]
