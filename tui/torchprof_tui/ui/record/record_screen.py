"""Form for a recording: a built-in workload, the user's own command, or an earlier run, with the options.

The form shows the equivalent command line. It starts nothing itself: it posts `RunAsked`.
"""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from rich.cells import cell_len
from textual import events, on, work
from textual.app import ComposeResult
from textual.containers import Container
from textual.content import Content
from textual.message import Message
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option as Row

from torchprof_tui.runs.history import PastRun, list_past_runs, read_request
from torchprof_tui.runs.recording_request import (
    DEFAULT_OUTPUT,
    OPTIONS,
    WORKLOADS,
    WORKLOADS_FOR_GPUS,
    Option,
    RecordingRequest,
    RequestError,
    find_default_python,
    is_gpu_present,
    recall_interpreter,
    summarize_workload,
)
from torchprof_tui.trace.core.errors import UnreadableFileError
from torchprof_tui.trace.core.user_files import make_absolute
from torchprof_tui.trace.model.event_kind import Kind
from torchprof_tui.ui.common import keys
from torchprof_tui.ui.common.bindings import style_hints
from torchprof_tui.ui.common.cell_text import cut_clauses
from torchprof_tui.ui.common.compare_asked import RunAsked
from torchprof_tui.ui.common.guarded_screen import GuardedScreen
from torchprof_tui.ui.common.name_display import clean, truncate
from torchprof_tui.ui.common.number_format import format_age
from torchprof_tui.ui.common.path_completions import type_text
from torchprof_tui.ui.record.foreign_request import describe_foreign_request, find_form_problem

if TYPE_CHECKING:
    from torchprof_tui.trace.model.trace import Trace


MAX_ROW_CELLS = 300  # cells of a past run's command; a stored one may have a megabyte


AGE_CELLS, OUTCOME_CELLS = 14, 8
"""Cells of "10 minutes ago" and "no trace"; the command is last, because it is the longest and may be cut."""


def format_past_run(run: PastRun) -> Content:
    return Content.assemble(
        "  ",
        (f"{format_age(time.time() - run.started_at):<{AGE_CELLS}}  ", "$text-muted"),
        (f"{format_outcome(run, is_short=True):<{OUTCOME_CELLS}}  ", "$text-muted"),
        truncate(clean(shlex.join(run.request.command)), MAX_ROW_CELLS),
    )


def format_outcome(run: PastRun, is_short: bool = False) -> str:
    """Format how a run ended: its duration, or what went wrong. `is_short`: in OUTCOME_CELLS cells."""
    result = run.result
    if not result.traces:
        return result.problems[0] if result.problems and not is_short else "no trace"
    if result.exit_status and result.end_reason != "interrupted":
        return f"exit {result.exit_status}" if is_short else f"failed with {result.exit_status}, trace kept"
    return f"{result.seconds:.1f} s"


FLAG_CELLS, VALUE_CELLS = 17, 9

_ALLOWED_CHARACTERS = {"count": "0123456789", "seconds": "0123456789."}
SWITCH_ON = "on"


class RunOptions(OptionList):
    """The options with their values.

    `values`: flag → the typed value, SWITCH_ON for a switch. Options without a value keep the run's default.
    """

    class Changed(Message):
        """A value was changed by the user."""

    def __init__(self, options: Sequence[Option], *, id: str) -> None:  # noqa: A002  (textual's own word)
        super().__init__(id=id, markup=False)
        self._options_by_flag = {option.flag: option for option in options}
        self.values: dict[str, str] = {}
        self._chosen: set[str] = set()  # flags that the user set, which `set_values` can keep

    def on_mount(self) -> None:
        self.add_options([Row(self._format_option(option), id=flag) for flag, option in self._options_by_flag.items()])
        self.highlighted = 0

    def on_resize(self) -> None:
        """Shorten the help to the new width: the screen shows all of that of the current option."""
        for flag, option in self._options_by_flag.items():
            self.replace_option_prompt(flag, self._format_option(option))

    @property
    def current_option(self) -> Option | None:
        row = self.highlighted_option
        return None if row is None else self._options_by_flag.get(row.id or "")

    def to_arguments(self, excluded_flags: Sequence[str] = ()) -> tuple[str, ...]:
        """Return the options as words of a command line."""
        arguments: list[str] = []
        for flag, option in self._options_by_flag.items():
            if (value := self.values.get(flag)) and flag not in excluded_flags:
                arguments += [flag] if option.kind == "switch" else [flag, value]
        return tuple(arguments)

    def switch_on(self, flag: str) -> None:
        """Switch an option on, as if the user had done it, and move the cursor to it."""
        self.highlighted = self.get_option_index(flag)
        self._chosen.add(flag)
        self.values[flag] = SWITCH_ON
        self.replace_option_prompt(flag, self._format_option(self._options_by_flag[flag]))

    def set_values(
        self, arguments: Sequence[str], extra_values: Mapping[str, str], keep_chosen: bool = False
    ) -> list[str]:
        """Replace all values by those in the words of a command line and in `extra_values` (by flag).

        `keep_chosen`: options that the user has set keep their values, also where those are empty.
        Returns the words that are left out, because no option takes them.
        """
        ignored: list[str] = []
        values = {flag: value for flag, value in extra_values.items() if value}
        words = list(arguments)
        while words:
            flag = words.pop(0)
            option = self._options_by_flag.get(flag)
            is_switch = option is not None and option.kind == "switch"
            value = SWITCH_ON if is_switch else words[0] if words else ""
            if option is None or not value or (option.values and value not in option.values):
                ignored.append(flag)
                continue
            values[flag] = value
            del words[: 0 if is_switch else 1]
        if keep_chosen:
            values = {flag: value for flag, value in values.items() if flag not in self._chosen}
            values |= {flag: value for flag, value in self.values.items() if flag in self._chosen}
        else:
            self._chosen.clear()
        self.values = values
        for flag, option in self._options_by_flag.items():
            self.replace_option_prompt(flag, self._format_option(option))
        return ignored

    def on_key(self, event: events.Key) -> None:
        if event.key in ("up", "down"):
            # Handled here because a binding would run only after keys that were typed right after this one.
            event.stop()
            event.prevent_default()
            self.action_cursor_down() if event.key == "down" else self.action_cursor_up()
            return
        option = self.current_option
        if option is None:
            return
        value = _edit_value(option, self.values.get(option.flag, ""), event)
        if value is None:
            if event.is_printable and event.character:
                event.stop()  # an invalid character must not start a command in the screen
            return
        event.stop()
        event.prevent_default()
        self.values[option.flag] = value
        self._chosen.add(option.flag)
        self.replace_option_prompt(option.flag, self._format_option(option))
        self.post_message(self.Changed())

    def _format_option(self, option: Option) -> Content:
        value = clean(self.values.get(option.flag, ""))
        if cell_len(value) > VALUE_CELLS:
            value = "…" + value[1 - VALUE_CELLS :]  # keep the end, where the user types
        room = self.scrollable_content_region.width - FLAG_CELLS - VALUE_CELLS - 3
        value_text = value or ("off" if option.kind == "switch" else "–")
        return Content.assemble(
            f" {truncate(option.flag, FLAG_CELLS):<{FLAG_CELLS}} ",
            (f"{value_text:<{VALUE_CELLS}} ", "$accent bold" if value else "$text-muted"),
            (cut_clauses(option.help, room), "$text-muted"),
        )


def _edit_value(option: Option, value: str, event: events.Key) -> str | None:
    """Apply a key to the value of an option. Returns the new value, None if the key does not edit it."""
    is_toggle = option.kind in ("switch", "choice")
    if event.key in ("space", "enter") and is_toggle:
        choices = ["", *(option.values or (SWITCH_ON,))]
        return choices[(choices.index(value) + 1) % len(choices)]
    if event.key == "backspace":
        return "" if is_toggle else value[:-1]
    if event.key == "delete":
        return ""
    if event.is_printable and event.character and not is_toggle:
        allowed = _ALLOWED_CHARACTERS.get(option.kind, event.character)
        return value + event.character if event.character in allowed else None
    return None


STACK_OPTION = "--with-stack"
PYTHON_OPTION = Option("--python", "text", "the interpreter that has torch, or its environment's folder", "PATH")
OUTPUT_OPTION = Option("--output", "text", f"where runs are kept ({DEFAULT_OUTPUT})", "FOLDER")

WIDE_MIN_WIDTH = 110  # minimal width for the options beside the list

PAST_RUNS_SHOWN = 20

PAST_RUNS_FIRST = 3
"""Past runs above the workloads: on 24 lines they and the first workload are on screen. The others are below."""

NAME_CELLS = 13

KEY_HINTS = {
    "run-command": ("enter start", "↓ past runs, workloads", "tab options", "esc back"),
    "run-list": ("enter take it", "ctrl+r start", "tab command", "esc back", "letters type a command"),
    "run-options": ("type a value", "space switch", "ctrl+r start", "tab list", "esc back", "del default"),
}
"""The keys of each part, the most important ones first: those that do not fit are left out."""

NO_GPU = "needs a GPU: none here"


class RecordScreen(GuardedScreen[None]):
    """The form. `request`, made in folder `cwd`, is what it is filled with at first.

    `switched_on`: an option to switch on in it, as "--with-stack", because the trace on screen was made without.
    `foreign_file`: the file of a request that this user did not make, which the form then describes in full.
    `environment`: the environment of a run, None for the process's own. `problem`: one line about the request's file.
    """

    TITLE = "record"
    CSS_PATH = "record_screen.tcss"
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (WIDE_MIN_WIDTH, "-wide")]
    AUTO_FOCUS = "#run-list"
    BINDINGS = keys.RECORD

    def __init__(
        self,
        request: RecordingRequest | None = None,
        cwd: str | None = None,
        foreign_file: str | None = None,
        environment: Mapping[str, str] | None = None,
        switched_on: str = "",
        problem: str | None = None,
    ) -> None:
        super().__init__()
        self._problem = problem
        self._switched_on = switched_on
        self._last_interpreter = ""  # that of the last run that worked, while the form has it as a default
        self._initial_request = request
        self._foreign_file = foreign_file
        self._environment = environment
        self._app_cwd = make_absolute(".")
        self._cwd = cwd or self._app_cwd
        self._past_runs: Sequence[PastRun] = ()
        self._has_gpu = is_gpu_present(os.environ)

    def compose(self) -> ComposeResult:
        title = "[b]Record a run[/b]   under torch.profiler; the trace opens by itself"
        yield Static(Content.from_markup(title), id="run-title")
        yield Static(id="run-foreign")
        yield Input(
            placeholder="a workload with its arguments, or python train.py …, torchrun … train.py",
            id="run-command",
            compact=True,
            select_on_focus=False,
        )
        with Container(id="run-body"):
            yield OptionList(id="run-list", markup=False)
            yield RunOptions((*OPTIONS, PYTHON_OPTION, OUTPUT_OPTION), id="run-options")
        yield Static(id="run-hint")
        yield Static(id="run-equivalent")
        yield Static(id="run-keys")

    def on_mount(self) -> None:
        if not self.query("#run-list"):
            return  # left before it was shown
        self._fill_list()
        if self._initial_request is not None:
            self._fill_form(self._initial_request, self._cwd, self._foreign_file)
            if self._switched_on:
                self.query_one(RunOptions).switch_on(self._switched_on)
        else:  # the interpreter of the last run that worked, where the default is another one
            python = recall_interpreter()
            environment = os.environ if self._environment is None else self._environment
            if python is not None and python != find_default_python(environment):
                self._last_interpreter = python
                self.query_one(RunOptions).set_values((), {PYTHON_OPTION.flag: python})
        self._report_problem(self._problem)
        self._load_past_runs()
        self._update_equivalent()

    def _report_problem(self, problem: str | None) -> None:
        if problem is not None:
            self.notify(problem, title="stored request", severity="warning", markup=False)

    @work(thread=True)
    def _load_past_runs(self) -> None:
        self.show_later(self._fill_list, list_past_runs(limit=PAST_RUNS_SHOWN))

    def _fill_list(self, past_runs: Sequence[PastRun] = ()) -> None:
        self._past_runs = past_runs
        option_list = self.query_one("#run-list", OptionList)
        current = option_list.highlighted_option.id if option_list.highlighted_option is not None else None
        past_rows = [Row(format_past_run(run), id=f"past:{index}") for index, run in enumerate(self._past_runs)]
        sections = (
            ("Past runs", past_rows[:PAST_RUNS_FIRST]),
            ("Workloads", [Row(self._format_workload(name), id=f"workload:{name}") for name in WORKLOADS]),
            ("Earlier runs", past_rows[PAST_RUNS_FIRST:]),
        )
        rows: list[Row | None] = []
        for title, section in sections:
            if section:
                rows += [*([None] if rows else []), Row(Content.styled(title, "bold"), disabled=True), *section]
        with self.app.batch_update():
            option_list.clear_options()
            option_list.add_options(rows)
            option_list.highlighted = option_list.get_option_index(current or f"workload:{WORKLOADS[0]}")

    def _format_workload(self, name: str) -> Content:
        summary, argument = summarize_workload(name), WORKLOADS_FOR_GPUS.get(name)
        is_useless = argument is not None and not self._has_gpu
        if is_useless:
            summary = f"{NO_GPU}: {argument} added" if argument else NO_GPU
        label = truncate(clean(name), NAME_CELLS)
        room = self.query_one("#run-list").scrollable_content_region.width - NAME_CELLS - 3
        return Content.assemble(
            "  ",
            (label, "$text-muted" if is_useless else ""),
            " " * (NAME_CELLS - len(label) + 1),
            (cut_clauses(clean(summary), room), "$text-muted"),
        )

    def _build_request(self) -> RecordingRequest:
        """Build the request that the form describes. Raises RequestError if the command cannot be parsed."""
        options = self.query_one(RunOptions)
        try:
            command = shlex.split(self.query_one("#run-command", Input).value)
        except ValueError as error:
            raise RequestError(f"the command cannot be read: {str(error).lower()}") from error
        python = options.values.get(PYTHON_OPTION.flag) or None
        names_path = bool(command) and os.sep in command[0] and not command[0].endswith(".py")
        if python == self._last_interpreter and names_path:  # the last run's gives way to a path in the command
            python = None
        arguments = options.to_arguments(excluded_flags=(PYTHON_OPTION.flag, OUTPUT_OPTION.flag))
        output = options.values.get(OUTPUT_OPTION.flag) or DEFAULT_OUTPUT
        return RecordingRequest(tuple(command), arguments, python, output)

    def _fill_form(self, request: RecordingRequest, cwd: str, foreign_file: str | None) -> None:
        """Fill the form with a request that was made in folder `cwd`; see the class for `foreign_file`."""
        if problem := find_form_problem(request, cwd):
            self._foreign_file, self._cwd = None, self._app_cwd
            self.notify(f"this request cannot be repeated: {problem}", severity="warning", markup=False)
            return
        self._cwd, self._foreign_file = cwd, foreign_file
        output = "" if request.output == os.path.join(self._cwd, DEFAULT_OUTPUT) else request.output
        ignored = self.query_one(RunOptions).set_values(
            request.options,
            {PYTHON_OPTION.flag: request.python or "", OUTPUT_OPTION.flag: "" if output == DEFAULT_OUTPUT else output},
            keep_chosen=True,
        )
        if ignored:
            self.notify(f"left out, unknown to this version: {' '.join(ignored)}", severity="warning", markup=False)
        self._set_command(shlex.join(request.command))

    def _set_command(self, text: str) -> None:
        field = self.query_one("#run-command", Input)
        type_text(field, text)
        self.set_focus(field)

    def action_start(self) -> None:
        try:
            request = self._build_request()
            request.argv(self._environment)
        except (RequestError, OSError) as error:
            self._show_hint(str(error), error=True)
            return
        self.post_message(RunAsked(request, self._cwd))

    def _update_equivalent(self) -> None:
        try:
            request = self._build_request()
        except RequestError as error:
            self._show_hint(str(error), error=True)
            return
        notice, equivalent = self.query_one("#run-foreign", Static), self.query_one("#run-equivalent", Static)
        notice.display = self._foreign_file is not None
        equivalent.display = self._foreign_file is None  # the notice says more
        if self._foreign_file is not None:
            notice.update(describe_foreign_request(request, self._cwd, self._foreign_file, self._environment))
        line = request.equivalent_command()
        if self._cwd != self._app_cwd:
            line = f"cd {shlex.quote(self._cwd)} && {line}"
        equivalent.update(Content.assemble(("$ ", "$text-muted"), clean(line)))

    def _show_hint(self, text: str, error: bool = False) -> None:
        hint = self.query_one("#run-hint", Static)
        hint.set_class(error, "wrong")
        hint.update(Content(clean(text)))

    def _update_hint(self) -> None:
        focused = self.focused.id if self.focused is not None and self.focused.id in KEY_HINTS else "run-list"
        hints = KEY_HINTS[focused or "run-list"]
        while len(hints) > 1 and len("   ".join(hints)) > self.size.width - 2:
            hints = hints[:-1]
        self.query_one("#run-keys", Static).update(style_hints("   ".join(hints)))
        option = self.query_one(RunOptions).current_option
        if focused == "run-options" and option is not None:
            values = option.metavar or " or ".join(option.values)
            self._show_hint(f"{option.flag}{' ' if values else ''}{values}: {option.help}")
        elif focused == "run-command":
            is_on = bool(self._switched_on) and self._switched_on in self.query_one(RunOptions).values
            self._show_hint(
                f"{self._switched_on} is on, because the trace on screen has no Python stacks; tab: the options"
                if is_on
                else "the command as you would type it; a workload's own options follow its name: matmul_add --size 64"
            )
        else:
            row = self.query_one("#run-list", OptionList).highlighted_option
            self._show_hint(self._describe_row(row.id or "") if row is not None else "")

    def _describe_row(self, row: str) -> str:
        kind, _, name = row.partition(":")
        if kind == "workload":
            return f"{name}: {summarize_workload(name)}"
        if kind == "past":
            run = self._past_runs[int(name)]
            command = truncate(run.request.equivalent_command(), MAX_ROW_CELLS)
            problem = f"{run.stored.problem}   " if run.stored.problem else ""
            return f"{problem}{command}   {format_outcome(run)}, in {run.result.folder}"
        return ""

    on_descendant_focus = on_option_list_option_highlighted = _update_hint

    def on_resize(self) -> None:
        self._update_hint()
        self.call_after_refresh(self._fit_workloads)

    def _fit_workloads(self) -> None:
        option_list = self.query_one("#run-list", OptionList)
        for name in WORKLOADS:
            option_list.replace_option_prompt(f"workload:{name}", self._format_workload(name))

    def on_input_changed(self) -> None:
        self._update_hint()
        self._update_equivalent()

    on_run_options_changed = on_input_changed

    def on_input_submitted(self) -> None:
        self.action_start()

    @on(OptionList.OptionSelected, "#run-list")
    def _apply_list_choice(self, event: OptionList.OptionSelected) -> None:
        kind, _, name = (event.option_id or "").partition(":")
        if kind == "past":
            run = self._past_runs[int(name)]
            self._fill_form(run.request, run.stored.cwd, None if run.stored.is_own else run.stored.path)
            self._report_problem(run.stored.problem)
        elif kind == "workload":
            argument = WORKLOADS_FOR_GPUS.get(name, "") if not self._has_gpu else ""
            if not (self._has_gpu or argument) and name in WORKLOADS_FOR_GPUS:
                self._show_hint(f"{name} {NO_GPU}: choose another workload", error=True)
                return
            if self._foreign_file is not None:  # its interpreter and options are not the user's choice
                self.query_one(RunOptions).set_values((), {}, keep_chosen=True)
            self._cwd, self._foreign_file = self._app_cwd, None
            self._set_command(f"{name} {argument}".rstrip())
        self._update_equivalent()

    def on_key(self, event: events.Key) -> None:
        """Start a command with any typed letter; `down` leads from the command to the list."""
        field = self.query_one("#run-command", Input)
        if field.has_focus and event.key == "down":
            event.stop()
            self.set_focus(self.query_one("#run-list"))
        elif event.is_printable and event.character not in (None, "?") and not field.has_focus:
            event.stop()
            self._set_command(field.value + event.character)

    def action_cycle_focus(self, direction: int) -> None:
        order = ("run-command", "run-options", "run-list")
        index = order.index(self.focused.id) if self.focused is not None and self.focused.id in order else 0
        # At once, unlike Widget.focus: the next key may already be queued.
        self.set_focus(self.query_one(f"#{order[(index + direction) % len(order)]}"))

    def action_back(self) -> None:
        self.dismiss()


def create_form_of_trace(path: str, trace: Trace | None, environment: Mapping[str, str] | None) -> RecordScreen:
    """Create the form with the request that recorded the trace at `path`, with stacks if `trace` has none.

    Empty where no request is known. One that this user did not make is only shown, see `runs.request_signature`.
    """
    try:
        stored = read_request(path)
    except UnreadableFileError as error:
        return RecordScreen(environment=environment, problem=str(error))
    if stored is None:
        return RecordScreen(environment=environment)
    lacks_stacks = trace is not None and not bool((trace.kind == Kind.PYTHON).any())
    foreign_file, switched_on = None if stored.is_own else stored.path, STACK_OPTION if lacks_stacks else ""
    return RecordScreen(stored.request, stored.cwd, foreign_file, environment, switched_on, stored.problem)
