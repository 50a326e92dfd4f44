"""Screen "Learn": guess the kernels of a range of the open trace, questions about it, and the cases to work through."""

from __future__ import annotations

from dataclasses import dataclass

from rich.cells import cell_len
from textual import work
from textual.app import ComposeResult
from textual.content import Content
from textual.message import Message
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option

from torchprof_tui.analysis.kernel.kernel_guess import Guess, GuessResult, compare_guesses, parse_guesses
from torchprof_tui.analysis.kernel.names.model import KernelClass
from torchprof_tui.analysis.kernel.names.name_decoder import decode_kernel_name
from torchprof_tui.learn.case_file import Case, CaseList, list_cases
from torchprof_tui.learn.progress import Result, read_progress
from torchprof_tui.trace.core.records import record
from torchprof_tui.trace.core.time_format import format_duration, format_time
from torchprof_tui.trace.model.trace import Trace
from torchprof_tui.ui.common import keys
from torchprof_tui.ui.common.guarded_screen import GuardedScreen
from torchprof_tui.ui.common.name_display import clean, truncate
from torchprof_tui.ui.common.painted_widget import Lines, TextPanel, TextRun, follow_theme, wrap_text
from torchprof_tui.ui.common.status_line import StatusLine

OWN = "\0own"  # id of the row with the questions about the open trace; no file has a NUL in its name

TITLE_CELLS = 42


@record
class GuessRange:
    """The range of a trace whose kernels are guessed; times in ns."""

    trace: Trace
    start: int
    end: int
    label: str


class GuessText(TextPanel):
    """The question, then the comparison of the guesses with the launched kernels."""

    def __init__(self, asked: GuessRange | None) -> None:
        super().__init__()
        self._asked = asked
        self._rows: list[GuessResult] | None = None

    def show_comparison(self, rows: list[GuessResult]) -> None:
        self._rows = rows
        self.refresh_content()

    def content(self, width: int) -> Lines:
        palette = self.palette
        if self._asked is None:
            return [[("Learn", palette.strong)]]
        t0, t1 = self._asked.start, self._asked.end
        title = f"{self._asked.label}: {format_duration(t1 - t0)} from {format_time(t0)}"
        lines: Lines = [[("Guess, then look", palette.strong)], *wrap_text(title, width, palette.strong), []]
        if self._rows is None:
            classes = ", ".join(each.label for each in KernelClass if each is not KernelClass.OTHER)
            question = "Which kernels does the code in this range launch, and how many of each?"
            form = "Classes, or parts of names, with or without a count, separated by commas."
            lines += wrap_text(question, width, palette.text) + wrap_text(form, width, palette.muted)
            return [*lines, [], *wrap_text(f"classes: {classes}", width, palette.muted)]
        if not self._rows:
            nothing = "No kernels were launched in this range, and none were expected."
            return lines + wrap_text(nothing, width, palette.text)
        correct = sum(row.is_correct for row in self._rows)
        lines += wrap_text(f"{correct} of {len(self._rows)} as expected; differences first.", width, palette.strong)
        lines.append([(f"   {'what':<18}{'expected':>9}{'launched':>9}{'time':>11}  heaviest of them", palette.muted)])
        lines += [self._format_row(row, width) for row in self._rows]
        return lines

    def _format_row(self, row: GuessResult, width: int) -> list[TextRun]:
        palette = self.palette
        guess = row.guess
        expected = "–" if guess is None else "some" if guess.count is None else str(guess.count)
        name = decode_kernel_name(row.example).display or clean(row.example) if row.example else ""
        term = truncate(clean(row.term), 17)
        numbers = f"{expected:>9}{row.actual_count:>9,}{format_duration(row.time) if row.actual_count else '':>11}  "
        return [
            (" ✓ " if row.is_correct else " ✗ ", palette.good if row.is_correct else palette.warning),
            (term + " " * (18 - cell_len(term)), palette.strong),
            (numbers, palette.text),
            (truncate(clean(name), max(width - 50, 8)), palette.muted),
        ]


class GuessInput(Input):
    """An input in which `?` opens the help as long as nothing is typed."""

    def check_consume_key(self, key: str, character: str | None) -> bool:
        return super().check_consume_key(key, character) and not (key == "question_mark" and not self.value)


class LearnScreen(GuardedScreen[None]):
    """Guess the kernels of a range (enter compares), or choose what to learn.

    `trace`: the open one, None for none. `asked`: the range whose kernels are guessed; None where there are none.
    """

    CSS_PATH = "learn_screen.tcss"
    TITLE = "learn"
    AUTO_FOCUS = ""
    help_topic = "learn"
    BINDINGS = keys.LEARN

    @dataclass
    class CaseChosen(Message):
        """The user wants to work through a case; None: through questions about the open trace."""

        case: Case | None

    def __init__(self, trace: Trace | None = None, asked: GuessRange | None = None) -> None:
        super().__init__()
        self._trace, self._asked = trace, asked
        self._text = GuessText(asked)
        self._input = GuessInput(placeholder="gemm 2, elementwise 3, flash")
        self._list = OptionList(id="learn-list", markup=False)
        self._status = StatusLine(id="learn-status")
        self._cases: dict[str, Case] = {}
        self.finished: str | None = None
        """The id of the case that has just been worked through: the list has the focus, at the next one."""

    def compose(self) -> ComposeResult:
        yield from (self._text, self._input, self._list, Static(id="learn-hint", markup=False), self._status)

    def on_mount(self) -> None:
        follow_theme(self)
        self.set_class(self._asked is None, "no-range")
        self._status.show_keys(keys.LEARN_HINTS)
        (self._list if self._asked is None or self.finished is not None else self._input).focus()
        self._read_cases()

    @work(thread=True, exclusive=True)
    def _read_cases(self) -> None:
        """Read the cases and the progress: a home folder may be on a slow network disk."""
        found, (results, problem) = list_cases(), read_progress()
        self.app.call_from_thread(self._show_cases, found, results, problem)

    def _show_cases(self, found: CaseList, results: dict[str, Result], problem: str) -> None:
        self._cases = {case.id: case for case in found.cases}
        done = sum(case.id in results for case in found.cases)
        options: list[Option | None] = []
        if self._trace is not None:
            options += [Option(Content.styled("This trace", "bold"), disabled=True)]
            options += [Option("  What does it show? Its findings as questions", id=OWN), None]
        heading = f"Cases, {done} of {len(found.cases)} done"
        options.append(Option(Content.styled(heading, "bold"), disabled=True))
        options += [Option(_format_case(case, results.get(case.id)), id=case.id) for case in found.cases]
        self._list.clear_options()
        self._list.add_options(options)
        # the next case that was not done, behind the finished one, else from the first
        ids = list(self._cases)
        start = ids.index(self.finished) + 1 if self.finished in self._cases else 0
        ids = [*ids[start:], *ids[:start]]
        first = next((case for case in ids if case not in results), next(iter(ids), None))
        if self._trace is not None and self.finished is None:
            first = OWN
        if first is not None:
            self._list.highlighted = self._list.get_option_index(first)
        problems = [*found.problems, *([problem] if problem else [])]
        if problems:
            self.query_one("#learn-hint", Static).update("\n".join(clean(line) for line in problems[:3]))

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        if self._asked is None:
            return
        guesses: list[Guess] = parse_guesses(event.value)
        asked = self._asked
        self._text.show_comparison(compare_guesses(asked.trace, asked.start, asked.end, guesses))

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        event.stop()
        case = self._cases.get(event.option_id or "")
        if case is not None or event.option_id == OWN:
            self.app.post_message(self.CaseChosen(case))
            self.dismiss(None)

    def action_leave(self) -> None:
        self.dismiss(None)

    def action_switch(self) -> None:
        """Move between the guess and the list."""
        if self._asked is not None and self._list.has_focus:
            self._input.focus()
        else:
            self._list.focus()


def _format_case(case: Case, result: Result | None) -> Content:
    title = truncate(clean(case.title), TITLE_CELLS)
    done = f"{result} right" if result is not None else ""
    about = f"{case.minutes} min  {case.sample.removeprefix('sample:')}"
    return Content.assemble(
        "  ", title, " " * (TITLE_CELLS + 2 - cell_len(title)), f"{done:<14}", (clean(about), "$text-muted")
    )
