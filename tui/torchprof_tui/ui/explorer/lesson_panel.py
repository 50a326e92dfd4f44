"""A case on the real screens: a panel above the lanes, a table or a comparison, with the question and what it is."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from textual.app import App
from textual.screen import Screen

from torchprof_tui.api.trace import Trace
from torchprof_tui.learn.case_file import Case, Target
from torchprof_tui.learn.evidence import CaseError, Evidence
from torchprof_tui.learn.lesson import Lesson, Phase
from torchprof_tui.learn.own_trace import build_own_case
from torchprof_tui.learn.progress import note_result
from torchprof_tui.trace.core.errors import TraceError
from torchprof_tui.trace.core.printable import clean
from torchprof_tui.ui.common import keys
from torchprof_tui.ui.common.compare_asked import CompareAsked
from torchprof_tui.ui.common.comparison_request import ComparisonRequest
from torchprof_tui.ui.common.painted_widget import Lines, TextPanel, TextRun, palette_for, wrap_text

if TYPE_CHECKING:
    from torchprof_tui.ui.explorer.explorer_screen import ExplorerScreen

POLL_SECONDS = 0.15  # seconds between looks whether the user has arrived at the evidence, on whatever screen
SCREENS = ("explorer", "table", "tree", "flame", "memory", "diff")  # screens that show the panel
MAX_SHARE = 0.45  # share of a screen's lines that the panel takes, at most; it scrolls beyond


def name_screen(screen: Screen[Any]) -> str:
    """Return "table" for the TableScreen, and so on."""
    return type(screen).__name__.removesuffix("Screen").lower()


class LessonDriver:
    """Work through a case above the explorer that shows its trace. `lesson`: None until its values are computed."""

    def __init__(self, app: App[Any], explorer: ExplorerScreen, case: Case | None) -> None:
        self.app, self.explorer = app, explorer
        self.lesson: Lesson | None = None
        self.problem = ""
        self._case = case
        self._is_noted = False
        self._looked_at = explorer.view_state.selected
        self._panels: list[LessonPanel] = []
        self._timer = app.set_interval(POLL_SECONDS, self._look)
        if case is not None and case.against:
            app.last_compared = case.against  # type: ignore[attr-defined]  # what D suggests

    async def start(self) -> None:
        """Compute the values of the case on a thread, then ask the first question; a worker of the app."""
        try:
            self.lesson = await asyncio.to_thread(build_lesson, self._case, Trace(self.explorer.trace))
        except (CaseError, TraceError, OSError) as error:
            self.problem = clean(str(error))
        self.show()

    def end(self) -> None:
        """Leave the case: remove its panel from every screen."""
        self._timer.stop()
        for panel in self._panels:
            if panel.is_attached:
                panel.remove()
        self._panels.clear()
        self.explorer.is_quiz = False
        for screen in (*self.app.screen_stack, self.explorer):
            _reserve_lines(screen, 0)

    async def _look(self) -> None:
        """Show the panel on the current screen, and explain once the evidence is there."""
        if self.explorer not in self.app.screen_stack:
            self.end()
            return
        screen = self.app.screen
        if name_screen(screen) not in SCREENS:
            return
        panel = next(iter(screen.query(LessonPanel)), None)
        if panel is None:
            panel = LessonPanel(self)
            self._panels.append(panel)
            await screen.mount(panel)
            self.show()
        if screen.focused is None:
            screen.set_focus(panel, scroll_visible=False)
        if self.lesson is not None and self.lesson.phase is Phase.LOOK:
            self._check_arrival(screen, self.lesson)

    def _check_arrival(self, screen: Screen[Any], lesson: Lesson) -> None:
        """Explain once the evidence is on screen; until then say so where another event is selected."""
        target, rows = lesson.question.at, lesson.evidence.rows[lesson.index]
        selected, is_on_lanes = self.explorer.view_state.selected, screen is self.explorer
        is_there = not target.screen or target.screen == name_screen(screen)
        if target.panel and not (is_on_lanes and self.explorer.is_panel_open(target.panel)):
            is_there = False
        if is_there and (rows is None or (is_on_lanes and selected in rows)):
            lesson.arrive()
        elif selected == self._looked_at:
            return
        else:
            self._looked_at, lesson.remark = selected, ""
            if rows is not None and selected >= 0 and selected not in rows:
                name = self.explorer.trace.event(selected).name
                is_other = any(self.explorer.trace.event(row).name == name for row in rows)
                lesson.remark = f"{'another ' if is_other else ''}{clean(name)} is selected: not the one to look at"
        self.show()

    def take_there(self) -> None:
        """Show the evidence of the question: select its event, open its panel or its screen."""
        assert self.lesson is not None
        target, rows = self.lesson.question.at, self.lesson.evidence.rows[self.lesson.index]
        self.app.run_worker(self._go_to(target, -1 if rows is None else rows[0]), group="lesson", exclusive=True)

    async def _go_to(self, target: Target, event: int) -> None:
        while self.app.screen is not self.explorer and self.explorer in self.app.screen_stack[:-1]:
            await self.app.pop_screen()
        self.explorer.show_evidence(event, target.panel or "")
        if target.screen == "diff" and self._case is not None:
            request = ComparisonRequest(self._case.against)
            self.app.post_message(CompareAsked(request, self.explorer.trace, self.explorer.trace.label))
        elif target.screen:
            await self.explorer.action_child(target.screen)

    def show(self) -> None:
        """Show the state on all panels; keep the result of a case that is done."""
        lesson = self.lesson
        if lesson is not None and lesson.phase is Phase.DONE and not self._is_noted:
            self._is_noted = True
            if lesson.case.id:
                result = lesson.case.id, lesson.correct_count, len(lesson.case.questions)
                self.app.run_worker(asyncio.to_thread(note_result, *result), group="house")
        self.explorer.is_quiz = lesson is not None and lesson.phase is Phase.ASK
        for panel in self._panels:
            panel.fit()


def build_lesson(case: Case | None, trace: Trace) -> Lesson:
    """Compute the values of a case, or make one of the trace's findings. Raises CaseError, TraceError."""
    case = build_own_case(trace) if case is None else case
    return Lesson(case, Evidence(case, trace))


class LessonPanel(TextPanel):
    """The text of a case at the top of one screen, and its keys."""

    DEFAULT_CSS = "LessonPanel { dock: top; height: 3; background: $surface; }"
    BINDINGS = keys.LESSON
    can_focus = True

    def __init__(self, driver: LessonDriver) -> None:
        super().__init__()
        self._driver = driver
        self._lead = "▌"  # marks the panel where there are no colours
        self._is_on_lanes = False

    def on_mount(self) -> None:
        self._is_on_lanes = self.screen is self._driver.explorer
        self.palette = palette_for(self.app)
        self.fit()

    def on_resize(self) -> None:
        super().on_resize()
        self.call_next(self.fit)

    def fit(self) -> None:
        """Take as many lines as the text needs; nothing once the panel is removed."""
        if not self.is_attached:
            return
        width, height = self.screen.size
        lines = min(len(self.content(max(width - 2, 1))), max(int(height * MAX_SHARE), 3))
        self.styles.height = lines
        _reserve_lines(self.screen, lines)
        self.refresh_content()

    def content(self, width: int) -> Lines:
        driver, palette = self._driver, self.palette
        lesson = driver.lesson
        if lesson is None:
            text = driver.problem or "computing the numbers of this trace …"
            style = palette.strong if driver.problem else palette.muted
            return [*wrap_text(text, width, style), self._hint()]
        case = lesson.case
        if lesson.phase is Phase.DONE:
            end = f"  {lesson.describe_end()}"
            heading: list[TextRun] = [(clean(case.title), palette.strong), (end, palette.strong)]
            own = wrap_text(f"Now in your trace: {clean(lesson.evidence.fill(case.own))}", width, palette.text)
            return [heading, *own, self._hint("enter", "other cases")]
        place = f"{lesson.index + 1}/{len(case.questions)} "
        heading = [(place, palette.muted), (clean(case.title), palette.strong)]
        return [heading, *self._build_question(lesson, width)]

    def _build_question(self, lesson: Lesson, width: int) -> Lines:
        palette, question = self.palette, lesson.question
        ask = clean(lesson.evidence.fill(question.ask))
        if lesson.phase is Phase.ASK:
            lines = wrap_text(ask, width, palette.strong)
            lines += wrap_text(lesson.remark, width, palette.warning) if lesson.remark else []
            for number, choice in enumerate(question.choices, 1):
                lines += wrap_text(f" {number}  {clean(choice)}", width, palette.text, "    ")
            if question.choices:
                return [*lines, self._hint(f"1-{len(question.choices)}", "what you expect", "G", "show me")]
            lines.append([(" your number: ", palette.text), (f"{lesson.typed}_", palette.cursor)])
            return [*lines, self._hint("0-9 .", "type it", "enter", "that is it", "G", "show me")]
        if lesson.phase is Phase.LOOK:
            given = f"You expect: {lesson.given}. " if lesson.given else ""
            look = clean(lesson.evidence.fill(question.look))
            lines = wrap_text(f"{given}Look: {look}", width, palette.text)
            lines += wrap_text(lesson.remark, width, palette.warning) if lesson.remark else []
            keys_there = (question.keys, "lead there") if question.keys else ()
            return [*lines, self._hint(*keys_there, "G", "take me there")]
        is_right = lesson.right[lesson.index]
        mark, style = (
            ("✓", palette.good) if is_right else ("✗", palette.warning) if lesson.given else ("·", palette.muted)
        )
        lines = wrap_text(f"{mark} {clean(lesson.describe_answer())}", width, style)
        lines += wrap_text(clean(lesson.evidence.fill(question.tell)), width, palette.text)
        return [*lines, self._hint("enter", "next")]

    def _hint(self, *pairs: str) -> list[TextRun]:
        if self._is_on_lanes:  # on other screens q goes back to it
            pairs = (*pairs, "q", "leave")
        runs: list[TextRun] = []
        for key, label in zip(pairs[::2], pairs[1::2], strict=True):
            runs += [(f"{'   ' if runs else ''}{key} ", self.palette.key), (label, self.palette.muted)]
        return runs

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Leave keys to the screen where the case does not need them."""
        lesson = self._driver.lesson
        if action == "leave":
            return self._is_on_lanes  # on other screens q goes back to them
        if lesson is None or action not in ("press", "go_on"):
            return action not in ("press", "go_on")
        is_end = lesson.phase is Phase.DONE and parameters == ("enter",)
        return action == "go_on" or is_end or lesson.takes(str(parameters[0]))

    async def action_press(self, key: str) -> None:
        lesson = self._driver.lesson
        if lesson is None or lesson.phase is Phase.DONE:
            await self.action_go_on()
            return
        lesson.press(key)
        self._driver.show()

    async def action_go_on(self) -> None:
        driver = self._driver
        lesson = driver.lesson
        if lesson is None:
            return
        if lesson.phase is Phase.DONE:  # list the cases
            while self.app.screen is not driver.explorer:
                await self.app.pop_screen()
            driver.end()
            await driver.explorer.action_child("learn")
            self.app.screen.finished = lesson.case.id  # type: ignore[attr-defined]  # it is not mounted yet
            return
        if lesson.phase is Phase.LOOK:
            driver.take_there()
        lesson.go_on()
        driver.show()

    def action_leave(self) -> None:
        self._driver.end()
        self.app.notify("G lists the cases", title="the case is left", timeout=3, markup=False)


def _reserve_lines(screen: Screen[Any], lines: int) -> None:
    """Leave lines of a screen that divides its height itself to the panel above it."""
    if hasattr(screen, "reserved_lines"):
        screen.reserved_lines = lines
