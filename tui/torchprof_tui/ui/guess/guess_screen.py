"""Screen "Guess, then look": hide the lanes, ask which kernels a range launches, and compare the guess with them."""

from __future__ import annotations

from rich.cells import cell_len
from textual.app import ComposeResult
from textual.widgets import Input

from torchprof_tui.analysis.kernel.kernel_guess import Guess, GuessResult, compare_guesses, parse_guesses
from torchprof_tui.analysis.kernel.names.model import KernelClass
from torchprof_tui.analysis.kernel.names.name_decoder import decode_kernel_name
from torchprof_tui.trace.core.time_format import format_duration, format_time
from torchprof_tui.trace.model.trace import Trace
from torchprof_tui.ui.common import keys
from torchprof_tui.ui.common.guarded_screen import GuardedScreen
from torchprof_tui.ui.common.name_display import clean, truncate
from torchprof_tui.ui.common.painted_widget import Lines, TextPanel, TextRun, follow_theme, wrap_text
from torchprof_tui.ui.common.status_line import StatusLine

EXAMPLE = "gemm 2, elementwise 3, flash"


class GuessText(TextPanel):
    """The question, then the comparison of the guesses with the launched kernels."""

    def __init__(self, trace: Trace, t0: int, t1: int, range_label: str) -> None:
        super().__init__()
        self._trace, self._range, self._range_label = trace, (t0, t1), range_label
        self._rows: list[GuessResult] | None = None

    def show_comparison(self, rows: list[GuessResult]) -> None:
        self._rows = rows
        self.refresh_content()

    def content(self, width: int) -> Lines:
        palette = self.palette
        t0, t1 = self._range
        title = f"{self._range_label}: {format_duration(t1 - t0)} from {format_time(t0)}"
        lines: Lines = [[("Guess, then look", palette.heading)], *wrap_text(title, width, palette.strong), []]
        if self._rows is None:
            classes = ", ".join(
                kernel_class.label for kernel_class in KernelClass if kernel_class is not KernelClass.OTHER
            )
            lines += wrap_text(
                "Which kernels does the code in this range launch, and how many of each?", width, palette.text
            )
            lines += wrap_text(
                "Classes, or parts of names, with or without a count, separated by commas.", width, palette.muted
            )
            return [*lines, [], *wrap_text(f"classes: {classes}", width, palette.muted)]
        correct = sum(row.is_correct for row in self._rows)
        if not self._rows:
            return [
                *lines,
                *wrap_text("No kernels were launched in this range, and none were expected.", width, palette.text),
            ]
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
            (" ✓ " if row.is_correct else " ✗ ", palette.accent if row.is_correct else palette.warning),
            (term + " " * (18 - cell_len(term)), palette.strong),
            (numbers, palette.text),
            (truncate(clean(name), max(width - 50, 8)), palette.muted),
        ]


class GuessInput(Input):
    """An input in which `?` opens the help as long as nothing is typed."""

    def check_consume_key(self, key: str, character: str | None) -> bool:
        return super().check_consume_key(key, character) and not (key == "question_mark" and not self.value)


class GuessScreen(GuardedScreen[None]):
    """Guess the kernels of one range of a trace. Enter shows the comparison; another guess may follow."""

    CSS_PATH = "guess_screen.tcss"
    help_topic = "guess"
    BINDINGS = keys.GUESS

    def __init__(self, trace: Trace, t0: int, t1: int, range_label: str) -> None:
        super().__init__()
        self._trace, self._range = trace, (t0, t1)
        self._text = GuessText(trace, t0, t1, clean(range_label))
        self._input = GuessInput(placeholder=EXAMPLE)
        self._status = StatusLine(id="guess-status")

    def compose(self) -> ComposeResult:
        yield from (self._text, self._input, self._status)

    def on_mount(self) -> None:
        follow_theme(self)
        self._status.show_keys(keys.GUESS_HINTS)
        self._input.focus()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        guesses: list[Guess] = parse_guesses(event.value)
        self._text.show_comparison(compare_guesses(self._trace, *self._range, guesses))

    def action_leave(self) -> None:
        self.dismiss(None)
