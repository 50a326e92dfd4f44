"""Cases on the real screens: the panel above the lanes, the table and a comparison; the list of cases."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from textual.pilot import Pilot

from tests.helpers.explorer_app import press_at_once, settled, until
from tests.helpers.golden_files import cases_at_every_size, compare_golden, text_on_screen
from tests.helpers.long_run import keep_some
from torchprof_tui.app import TorchprofApp
from torchprof_tui.learn.case_file import Case, list_cases
from torchprof_tui.learn.lesson import Lesson, Phase
from torchprof_tui.learn.progress import read_progress
from torchprof_tui.trace.loading.resolve import resolve_specs
from torchprof_tui.ui.explorer.explorer_screen import ExplorerScreen
from torchprof_tui.ui.explorer.lesson_panel import LessonPanel, name_screen
from torchprof_tui.ui.learn.learn_screen import LearnScreen

CASES = {case.id: case for case in list_cases().cases}


@pytest.fixture(autouse=True)
def own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))


@asynccontextmanager
async def learning(
    spec: str, case: Case | None, size: tuple[int, int] = (100, 30)
) -> AsyncIterator[tuple[TorchprofApp, Pilot[None], Lesson]]:
    """Run the app with a trace and a case; yield it when the first question is asked."""
    opener = resolve_specs([spec]).create_opener(cache=False)
    opener.start()
    app = TorchprofApp(opener, cache=False, learn=True, case=case)
    try:
        async with app.run_test(size=size) as pilot:
            await app.lanes_ready.wait()
            await until(pilot, lambda: app.lesson is not None and app.lesson.lesson is not None)
            await until(pilot, lambda: bool(app.screen.query(LessonPanel)))
            await settled(pilot)
            assert app.lesson is not None
            assert app.lesson.lesson is not None
            yield app, pilot, app.lesson.lesson
    finally:
        opener.cancel()


def text(app: TorchprofApp) -> str:
    return text_on_screen(app.screen)


@pytest.mark.long
async def test_a_question_is_answered_and_explained_when_the_user_arrives() -> None:
    async with learning("sample:matmul_add_64_cold_eager", CASES["wide-step"]) as (app, pilot, lesson):
        explorer = app.screen
        assert isinstance(explorer, ExplorerScreen)
        assert "your number: _" in text(app)
        await pilot.press("d", "w")  # the lanes have their keys meanwhile
        await pilot.press("3", "4", "backspace")
        await until(pilot, lambda: "your number: 3_" in text(app))
        await pilot.press("enter")
        await until(pilot, lambda: "Look: " in text(app))
        assert lesson.phase is Phase.LOOK
        await pilot.press("right")
        await pilot.pause(0.4)
        assert lesson.phase is Phase.LOOK  # that is not step 4
        await pilot.press(*["right_curly_bracket"] * 3)
        await until(pilot, lambda: lesson.phase is Phase.TELL)
        await until(pilot, lambda: "✓ right: 3" in text(app))
        assert "216.9 µs, 88.2 µs, 76.8 µs" in text(app)
        await pilot.press("enter")
        await until(pilot, lambda: "Is it the GPU that is slow" in text(app))


@pytest.mark.long
async def test_what_does_not_count_is_said_and_the_verdict_waits() -> None:
    """A number that is no choice, an event that is not the evidence; the verdict would answer what is asked."""
    case = CASES["cold-start"]
    async with learning(case.sample, case, (120, 40)) as (app, pilot, lesson):
        await until(pilot, lambda: "kernel of the first matmul takes" in text(app))
        assert "overhead-bound ·" not in text(app)
        await pilot.press("7")
        await until(pilot, lambda: "7 is none of the answers: 1 to 3" in text(app))
        await pilot.press("3")
        await until(pilot, lambda: "Look: " in text(app) and "overhead-bound ·" in text(app))
        assert "none of the answers" not in text(app)
        await press_at_once(pilot, ["slash", *"aten::add", "enter"])
        await until(pilot, lambda: "aten::add is selected: not the one to look at" in text(app))
        assert lesson.phase is Phase.LOOK
        await press_at_once(pilot, ["slash", *"aten::matmul", "enter"])  # as long as the aten::mm in it
        await until(pilot, lambda: lesson.phase is Phase.TELL or "another aten::matmul is selected" in text(app))
        await pilot.press("N")
        await until(pilot, lambda: lesson.phase is Phase.TELL)


@pytest.mark.long
@pytest.mark.parametrize("size", [(160, 48), pytest.param((240, 60), marks=pytest.mark.long)])
async def test_no_panel_answers_what_is_asked(size: tuple[int, int]) -> None:
    case = CASES["cold-start"]
    async with learning(case.sample, case, size) as (app, pilot, lesson):
        await until(pilot, lambda: lesson.phase is Phase.ASK and "kernel of the first matmul takes" in text(app))
        await settled(pilot)
        assert "3 steps, median" in text(app)
        assert "cold-call" not in text(app)
        assert "overhead-bound" not in text(app)
        assert "largest gaps" not in text(app)
        await pilot.press("3")
        await until(pilot, lambda: "1 ● cold-call" in text(app) or "▶ cold-call" in text(app))
        await pilot.press("q")
        await until(pilot, lambda: not app.screen.query(LessonPanel))
        assert text(app).count("cold-call") > 1


@pytest.mark.long
async def test_the_keys_of_a_case_are_the_lanes_own_after_it() -> None:
    async with learning("sample:matmul_add_64_cold_eager", CASES["wide-step"]) as (app, pilot, _):
        explorer = app.screen
        assert isinstance(explorer, ExplorerScreen)
        lines = explorer.reserved_lines
        assert lines == app.screen.query_one(LessonPanel).size.height > 0
        await pilot.press("q")
        await until(pilot, lambda: not app.screen.query(LessonPanel))
        assert explorer.reserved_lines == 0
        await pilot.press("1")
        await until(pilot, lambda: explorer.is_panel_open("cheatsheet"))
        await pilot.press("G")
        await until(pilot, lambda: isinstance(app.screen, LearnScreen))


@pytest.mark.long
async def test_taken_through_screens_to_the_end_and_the_list(tmp_path: Path) -> None:
    """The table and the cheatsheet's event by G alone; the result is kept; enter lists the cases."""
    async with learning("sample:matmul_add_64_cold_eager", CASES["table"]) as (app, pilot, lesson):
        await pilot.press("2")
        assert lesson.phase is Phase.LOOK
        await pilot.press("G")
        await until(pilot, lambda: name_screen(app.screen) == "table" and bool(app.screen.query(LessonPanel)))
        await until(pilot, lambda: "Total contains what is called" in text(app))
        await pilot.press("enter")
        await until(pilot, lambda: lesson.index == 1)
        await pilot.press("3")  # on the table
        await until(pilot, lambda: lesson.phase is Phase.TELL)  # which is the evidence
        await pilot.press("enter", "2", "G")
        await until(pilot, lambda: isinstance(app.screen, ExplorerScreen) and lesson.phase is Phase.TELL)
        explorer = app.screen
        assert isinstance(explorer, ExplorerScreen)
        rows = lesson.evidence.rows[2]
        assert rows is not None
        await until(pilot, lambda: explorer.view_state.selected in rows)
        await until(pilot, lambda: "✗ you expected aten::add" in text(app))
        await pilot.press("enter")
        await until(pilot, lambda: "2 of 3 as expected" in text(app))
        await settled(pilot)
        assert str(read_progress()[0]["table"]) == "2 of 3"
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(app.screen, LearnScreen))
        await until(pilot, lambda: "2 of 3 right" in text(app))
        learn = app.screen
        assert isinstance(learn, LearnScreen)
        following = list(CASES)[list(CASES).index("table") + 1]
        assert learn._list.has_focus
        assert learn._list.highlighted == learn._list.get_option_index(following)
        await pilot.press("enter")
        await until(pilot, lambda: app.lesson.lesson is not None and app.lesson.lesson.case.id == following)  # type: ignore[union-attr]


@pytest.mark.long
@pytest.mark.parametrize("size", [(80, 24), pytest.param((120, 40), marks=pytest.mark.long)])
async def test_a_comparison_is_evidence_and_fits_below_the_question(size: tuple[int, int]) -> None:
    case = CASES["fusion"]
    async with learning(case.sample, case, size) as (app, pilot, lesson):
        await pilot.press("G", "G")
        await until(pilot, lambda: name_screen(app.screen) == "diff" and bool(app.screen.query(LessonPanel)))
        assert lesson.phase is Phase.TELL
        await until(pilot, lambda: "it is: 6" in text(app) and "[account" in text(app))
        await settled(pilot)
        assert "? help" in text(app).rstrip().split("\n")[-1]  # the status line, below the account


@pytest.mark.long
async def test_questions_about_any_trace() -> None:
    async with learning("sample:linear_eager", None) as (app, pilot, lesson):
        assert "What limits this program?" in text(app)
        assert lesson.case.id == ""
        await pilot.press("1", "c")
        await until(pilot, lambda: lesson.phase is Phase.TELL)
        await until(pilot, lambda: "GPU busy" in text(app))
        while lesson.phase is not Phase.DONE:
            await pilot.press("G")
        await settled(pilot)
        assert read_progress() == ({}, "")  # it is no case


@pytest.mark.long
async def test_a_case_that_does_not_fit_its_trace_is_one_line() -> None:
    opener = resolve_specs(["sample:linear_eager"]).create_opener(cache=False)
    opener.start()
    app = TorchprofApp(opener, cache=False, learn=True, case=CASES["wide-step"])
    try:
        async with app.run_test(size=(100, 30)) as pilot:
            await until(pilot, lambda: app.lesson is not None and bool(app.lesson.problem))
            await until(pilot, lambda: "wide-step: values." in text(app))
            await pilot.press("1", "q")
            await until(pilot, lambda: not app.screen.query(LessonPanel))
    finally:
        opener.cancel()


@pytest.mark.long
async def test_the_list_opens_another_sample_and_begins() -> None:
    app = TorchprofApp(cache=False, learn=True)
    async with app.run_test(size=(100, 30)) as pilot:
        await until(pilot, lambda: isinstance(app.screen, LearnScreen) and "Which step is wide" in text(app))
        await pilot.press("down", "enter")
        await until(pilot, lambda: "Three steps run the same two ops" in text(app))
        await pilot.press("q")
        await until(pilot, lambda: not app.screen.query(LessonPanel))
        await pilot.press("G")
        await until(pilot, lambda: isinstance(app.screen, LearnScreen) and "Which ops launch nothing" in text(app))
        learn = app.screen
        assert isinstance(learn, LearnScreen)
        learn._list.highlighted = learn._list.get_option_index("batch")
        await pilot.press("tab", "enter")
        await until(pilot, lambda: "x has a batch of 8 now" in text(app))


@cases_at_every_size("phase", ["ask", "tell"])
async def test_golden(phase: str, size: tuple[int, int]) -> None:
    async with learning("sample:matmul_add_64_cold_eager", CASES["first-look"], size) as (app, pilot, _):
        if phase == "tell":
            await pilot.press("2", "enter", "G")
            await until(pilot, lambda: "one for the matmul" in text(app))
        await settled(pilot)
        await pilot.pause(0.3)
        await settled(pilot)
        drawn = text(app)
    compare_golden(f"lesson-{phase}", size, drawn)


PUSHED = ("first-look", "idle-gpu")
"""Cases whose keys each push presses; the long run presses those of all."""

ARROWS = {"↑": "up", "↓": "down", "←": "left", "→": "right", "esc": "escape"}


async def press_as_told(pilot: Pilot[None], keys: str) -> None:
    """Press the keys of a question: names, characters, or a text to type."""
    for word in keys.split():
        if word in ("enter", "tab", *ARROWS):
            await pilot.press(ARROWS.get(word, word))
        else:
            await press_at_once(pilot, word)
        await settled(pilot)


@pytest.mark.parametrize(
    "name", keep_some([pytest.param(name, marks=() if name in PUSHED else pytest.mark.long) for name in CASES], 1)
)
async def test_the_keys_of_every_question_lead_to_its_evidence(name: str) -> None:
    case = CASES[name]
    async with learning(case.sample, case, (160, 48)) as (app, pilot, lesson):
        for question in case.questions:
            assert lesson.phase is Phase.ASK
            await pilot.press("G")
            await pilot.pause(0.3)
            if lesson.phase is Phase.LOOK:  # else it is on the screen already
                await press_as_told(pilot, question.keys)
                for _ in range(100):
                    if lesson.phase is Phase.TELL:
                        break
                    await pilot.pause(0.05)
                assert lesson.phase is Phase.TELL, (question.keys, question.at, text(app))
            await pilot.press("enter")
            while app.screen is not app.lesson.explorer:  # type: ignore[union-attr]
                await pilot.press("q" if not app.screen.query("LessonPanel") else "escape")
                await settled(pilot)
