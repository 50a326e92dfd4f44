"""The cases that ship: their numbers are computed on their samples, proofs hold, and texts fit a small screen."""

from __future__ import annotations

import gzip
import json
import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import torchprof_tui
from tests.helpers.long_run import keep_some
from tests.helpers.paths import ROOT, SAMPLES
from torchprof_tui.learn.case_file import Case, list_cases, read_case
from torchprof_tui.learn.evidence import Evidence, build_environment
from torchprof_tui.learn.expression import ANSWERS, FIELD, FORMATS, FUNCTIONS, QUESTIONS, evaluate_expression
from torchprof_tui.learn.lesson import Lesson, Phase
from torchprof_tui.ui.common.painted_widget import wrap_text
from torchprof_tui.ui.explorer.lesson_panel import MAX_SHARE

KNOWN = list_cases()
CASES = {case.id: case for case in KNOWN.cases}

MEASURED = re.compile(r"\d[\d.,]*\s?(ns|µs|ms|s|%|[KMG]i?B|GB/s)(?!\w)")
"""A number with a unit: the text of a case has none of its own."""

SMALL_COLUMNS, SMALL_LINES = 80, 24


@cache
def prove(name: str) -> Evidence:
    """Compute all values of a case; raises where one does not resolve, a proof fails or evidence is missing."""
    case = CASES[name]
    return Evidence(case, torchprof_tui.open(case.sample))


def test_there_are_cases_and_none_is_broken() -> None:
    assert KNOWN.problems == ()
    assert len(CASES) >= 12


@pytest.mark.parametrize("name", keep_some(CASES, 8))
def test_every_value_of_a_case_is_computed_and_shown(name: str) -> None:
    evidence = prove(name)
    case = CASES[name]
    texts = [text for question in case.questions for text in (question.ask, question.look, question.tell)]
    used = {field[1] for text in (*texts, case.own) for field in FIELD.finditer(text)}
    for text in (*texts, case.own):
        assert not FIELD.search(evidence.fill(text)), text
    for question in case.questions:
        if question.number:
            assert evidence.compute_number(question) >= 0
    named = " ".join([*case.values.values(), *(q.proof + q.number for q in case.questions)])
    assert not [value for value in case.values if value not in used and not re.search(rf"\b{value}\b", named)]


@pytest.mark.parametrize("name", CASES)
def test_no_measured_number_is_typed_into_a_case(name: str) -> None:
    for question in CASES[name].questions:
        for text in (question.ask, question.look, question.tell, *question.choices):
            assert not MEASURED.search(FIELD.sub("", text)), text


@pytest.mark.parametrize("name", keep_some(CASES, 3))
def test_every_text_fits_the_panel_of_a_small_screen(name: str) -> None:
    """Lines of the panel at 80x24: the heading, the text, the hint."""
    width, most = SMALL_COLUMNS - 2, int(SMALL_LINES * MAX_SHARE)
    evidence = prove(name)
    lesson = Lesson(CASES[name], evidence)
    for question in CASES[name].questions:
        asked = sum(_count(text, width) for text in (evidence.fill(question.ask), *question.choices))
        assert 2 + asked + (not question.choices) <= most, question.ask
        lesson.go_on()
        assert 2 + _count(f"Look: {evidence.fill(question.look)}", width) <= most, question.look
        answer = f"✗ you expected a; {lesson.describe_answer()}"
        told = _count(answer, width) + _count(evidence.fill(question.tell), width)
        assert 2 + told <= most, question.tell
        lesson.go_on()
        lesson.go_on()
    assert lesson.phase is Phase.DONE


def _count(text: str, width: int) -> int:
    return len(wrap_text(text, width, None))  # type: ignore[arg-type]


def test_the_example_of_the_documentation_is_a_case(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "tasks" / "learn.md").read_text(encoding="utf-8")
    path = tmp_path / "example.toml"
    path.write_text(page.partition("```toml\n")[2].partition("```")[0], encoding="utf-8")
    case = read_case(path)
    evidence = Evidence(case, torchprof_tui.open(case.sample))
    assert evidence.fill(case.questions[0].tell) == "The first takes 216.9 µs, 2.8 times as long as the last."
    for name in (*FUNCTIONS, *ANSWERS, *QUESTIONS, *filter(None, FORMATS)):
        assert re.search(rf"[`:\s|]{name}[`>.(\s]", page), f"{name} is not documented"


# -- values against the raw file -----------------------------------------------------------------------------


@cache
def read_raw(sample: str) -> list[dict[str, Any]]:
    with gzip.open(SAMPLES / f"{sample}.pt.trace.json.gz") as file:
        return [event for event in json.load(file)["traceEvents"] if event.get("ph") == "X"]


def find_raw(sample: str, name: str, category: str = "cpu_op") -> list[dict[str, Any]]:
    found = [event for event in read_raw(sample) if event["name"] == name and event["cat"] == category]
    return sorted(found, key=lambda event: float(event["ts"]))


@pytest.mark.parametrize(
    ("sample", "expression", "name", "category", "field"),
    [
        ("matmul_add_64_cold_eager", 'events("matmul_add")[1].duration_ns', "matmul_add", "user_annotation", "dur"),
        ("matmul_add_64_cold_eager", "steps[1].duration_ns", "ProfilerStep#3", "user_annotation", "dur"),
        ("matmul_add_64_sched0_active3", 'events("aten::mm")[0].duration_ns', "aten::mm", "cpu_op", "dur"),
        ("generate_eager", 'row("aten::embedding").cpu_us', "aten::embedding", "cpu_op", "dur"),
    ],
)
def test_times_are_those_of_the_raw_file(sample: str, expression: str, name: str, category: str, field: str) -> None:
    environment = build_environment(torchprof_tui.open(f"sample:{sample}"))
    found = find_raw(sample, name, category)
    nth = 1 if "[1]" in expression and name == "matmul_add" else 0
    expected = sum(event[field] for event in found) if "row(" in expression else found[nth][field]
    assert evaluate_expression(expression, {}, environment) == pytest.approx(expected * 1000, abs=1)


def test_microseconds_of_both_sides_become_nanoseconds() -> None:
    """The step time of a comparison is that of the steps; a field of a field keeps its unit."""
    environment = build_environment(torchprof_tui.open("sample:generate_eager"), "sample:generate_graph")
    durations = [event["dur"] for event in read_raw("generate_eager") if event["name"].startswith("step[DECODE")]
    step = evaluate_expression("diff.step_us.a", {}, environment)
    assert min(durations) * 1000 <= step <= max(durations) * 1100  # with the pause up to the next step
    assert isinstance(evaluate_expression("diff.step_us.within_noise", {}, environment), bool)
    other = evaluate_expression("other.steps[1].duration_ns", {}, environment)
    raw = sorted(
        (
            event
            for event in read_raw("generate_graph")
            if event["name"].startswith("step[") and event["cat"] != "gpu_user_annotation"
        ),
        key=lambda event: float(event["ts"]),
    )
    assert other == pytest.approx(raw[1]["dur"] * 1000, abs=1)


@pytest.mark.parametrize(
    ("spec", "value", "shown"),
    [
        ("", 3, "3"),
        ("", 12345, "12,345"),
        ("", 3.0, "3"),
        ("", 0.2345, "0.234"),
        ("", 141.4, "141"),
        ("", "\x1b[31mred", "·[31mred"),
        ("time", 1500, "1.50 µs"),
        ("time", 70_478_050.0, "70.5 ms"),
        ("%", 0.5, "50 %"),
        ("%", 0.024, "2.4 %"),
        ("x", 2.82, "2.8"),
        ("x", 18.3, "18"),
        ("KiB", 213_188, "208 KiB"),
        ("MiB", 137_796_096, "131 MiB"),
    ],
)
def test_formats(spec: str, value: object, shown: str) -> None:
    assert FORMATS[spec](value) == shown


def test_a_name_of_a_case_may_be_shortened() -> None:
    assert KNOWN.find("idle") == CASES["idle-gpu"]
    assert KNOWN.find("c") is None  # several begin so
    assert KNOWN.find("") is None
    assert isinstance(KNOWN.find("idle-gpu"), Case)
