"""Screen of a job that hangs: the verdict, the states of the last collectives on all ranks, and the stack of a rank."""

from __future__ import annotations

from textual import events
from textual.app import ComposeResult
from textual.geometry import Size

from torchprof_hang.analysis.alignment import Group, align_groups
from torchprof_hang.analysis.evidence import Evidence
from torchprof_hang.analysis.records import State
from torchprof_hang.answers import DISAGREEING, Hang, list_facts
from torchprof_tui.ui.common.child_screen import ListScreen
from torchprof_tui.ui.common.guides import Guide
from torchprof_tui.ui.common.keys import parse_hints, parse_keys
from torchprof_tui.ui.common.name_display import clean, truncate
from torchprof_tui.ui.common.painted_widget import (
    Lines,
    RowList,
    TextPanel,
    TextRun,
    wrap_text,
)
from torchprof_tui.ui.common.status_line import StatusLine

KEYS = parse_keys("""\
= move.up move.down move.page-up move.page-down move.first move.last
move.left  collective(-1)
move.right  collective(1)  later: the next collective
find.next  disagree(1)  next: the next rank and collective that disagree with the others
find.previous  disagree(-1)
move.next-step  group(1)  group: the next process group
move.previous-step  group(-1)
move.open  stack  stack: the whole stack of the rank, or of the call; again: the table
find.search  find  find: go to a rank
= write.copy write.copy-all
move.clear  back  back: leave the stack
""")

HINTS = parse_hints(
    "? = help; q = quit; n N = disagreement; enter = stack; { } = group; ← → = collective; / = rank; y Y = copy"
)

GUIDE = Guide(
    "Why a job hangs",
    (
        ("first line", "the rank at fault, its operation and line, and who waits for it"),
        ("table", "a row for each rank, a column for each collective of the process group, by its number"),
        ("sched, start, done", "the call is queued, its transfer has begun, it is over. gloo records no start"),
        ("absent", "the rank has not called this collective"),
        ("op, size, dtype", "it called another operation, or with another size or dtype, than most ranks"),
        ("none, -", "the rank left no dump; its ring buffer no longer has this collective"),
        ("stack", "of the rank when it was dumped; of a call in the table, who called it"),
    ),
    ("collective", "process group"),
)

WORDS = {
    State.SCHEDULED: "sched",
    State.STARTED: "start",
    State.COMPLETED: "done",
    State.ABSENT: "absent",
    State.OTHER_OP: "op",
    State.OTHER_SIZE: "size",
    State.OTHER_DTYPE: "dtype",
    State.NO_DUMP: "none",
    State.LOST: "-",
}
CELL, GUTTER = 8, 9
MIN_STACK_LINES = 5
FIND = "rank"


class VerdictLines(TextPanel):
    """The verdict, and the facts about it."""

    def __init__(self, hang: Hang) -> None:
        super().__init__(id="hang-verdict")
        self._hang = hang

    def content(self, width: int) -> Lines:
        lines = wrap_text(clean(self._hang.sentence), width, self.palette.strong)
        for fact in list_facts(self._hang):
            lines += wrap_text(fact, width, self.palette.muted)
        return lines


class HangScreen(ListScreen):
    """The lowest screen of `torchprof-tui hang`."""

    BINDINGS = KEYS
    TITLE = "hang"
    help_topic = GUIDE
    CSS_PATH = "hang_screen.tcss"

    def __init__(self, evidence: Evidence, hang: Hang) -> None:
        super().__init__()
        self.evidence, self.hang = evidence, hang
        groups = align_groups(evidence)
        self._groups = list(groups.values())
        self._at = next((index for index, each in enumerate(self._groups) if each.label == hang.group), 0)
        self._numbers: list[int] = []
        self._states: dict[int, dict[int, State]] = {}
        self._members: tuple[int, ...] = ()
        self.column = self._left = 0
        self._verdict = VerdictLines(hang)
        self._title = StatusLine(id="hang-title")
        self.rows = RowList(self._build_row, self._build_header, id="hang-rows")
        self._stack = RowList(self._build_line, self._build_stack_header, id="hang-stack")
        self._lines: list[str] = []
        self._stack_title = ""
        self._is_stack_open = False

    def compose(self) -> ComposeResult:
        yield from (self._verdict, self._title, self.rows, self._stack, self._status, self._prompt)

    def on_mount(self) -> None:
        self.follow_theme(HINTS)
        self.rows.empty_text = "No collectives are recorded: set TORCH_FR_BUFFER_SIZE=2000, or use run --watch-hang"
        self._stack.empty_text = "No stack is recorded: take it with hang --live, or py-spy dump"
        self._show_group()
        ranks, number = self.hang.ranks or self.hang.waiting, self.hang.number
        if number in self._numbers:
            self.column = self._numbers.index(number)
        if ranks and ranks[0] in self._members:
            self.rows.move_to(self._members.index(ranks[0]))
        self._arrange(self.app.size)
        self.handle_cursor_move()

    def on_resize(self, event: events.Resize) -> None:
        self._arrange(event.size)
        self.call_after_refresh(self.rows.repaint)

    def _arrange(self, size: Size) -> None:
        """Give the verdict its lines, and the stack a third of the rest, or all of it while it is open."""
        verdict = min(len(self._verdict.content(size.width - 2)), max(size.height // 3, 1))
        self._verdict.styles.height = verdict
        rest = size.height - verdict - 2
        self.rows.display = not self._is_stack_open
        few = rest - len(self._members) - 1
        self._stack.styles.height = rest if self._is_stack_open else max(rest // 3, few, MIN_STACK_LINES)

    # -- the table ----------------------------------------------------------------------------------------------

    @property
    def group(self) -> Group | None:
        return self._groups[self._at] if self._groups else None

    def _show_group(self) -> None:
        group = self.group
        if group is None:
            self._members = tuple(sorted(self.evidence.records))
            self._title.show_state("no process group is recorded")
        else:
            self._members, self._numbers = group.members, sorted(group.rows)
            self._states = {}
            self.column = max(len(self._numbers) - 1, 0)
            which = f" · {self._at + 1} of {len(self._groups)} groups" if len(self._groups) > 1 else ""
            self._title.show_state(
                clean(f"{group.label}: {len(group.members):,} ranks, {len(group.rows):,} collectives{which}")
            )
        self.rows.set_row_count(len(self._members))

    def _list_states(self, number: int) -> dict[int, State]:
        if number not in self._states and self.group is not None:
            self._states[number] = self.group.list_states(number, self.evidence.records)
        return self._states.get(number, {})

    def _list_shown(self, width: int) -> range:
        """List the columns that fit, with that of the cursor among them."""
        count = max((width - GUTTER) // CELL, 1)
        self._left = min(max(self._left, self.column - count + 1), self.column)
        self._left = max(min(self._left, len(self._numbers) - count), 0)
        return range(self._left, min(self._left + count, len(self._numbers)))

    def _build_header(self, width: int) -> list[TextRun]:
        palette = self.rows.palette
        runs: list[TextRun] = [(" rank".ljust(GUTTER), palette.muted)]
        for column in self._list_shown(width):
            is_current = column == self.column
            text = f"{'▼' if is_current else ''}#{self._numbers[column]}"
            runs.append((truncate(text, CELL - 1).ljust(CELL), palette.strong if is_current else palette.muted))
        return runs

    def _build_row(self, index: int, width: int, selected: bool) -> list[TextRun]:
        palette, rank = self.rows.palette, self._members[index]
        is_at_fault = rank in self.hang.ranks
        label = f"{'▶' if selected else ' '}{'*' if is_at_fault else ' '}{rank}"
        runs: list[TextRun] = [(label.ljust(GUTTER), palette.active if selected else palette.text)]
        for column in self._list_shown(width):
            state = self._list_states(self._numbers[column]).get(rank, State.NO_DUMP)
            style = palette.warning if state in DISAGREEING else palette.muted
            style = palette.text if state in (State.SCHEDULED, State.STARTED) else style
            word = WORDS[state]
            if selected and column == self.column:
                word, style = f"[{word}]", palette.cursor
            runs.append((word.ljust(CELL), style))
        return runs

    # -- the stack ----------------------------------------------------------------------------------------------

    def handle_cursor_move(self) -> None:
        """Show the call under the cursor, and the stack of its rank."""
        rank = self._members[self.rows.cursor] if self._members else -1
        number = self._numbers[self.column] if self._numbers else 0
        operation = None if self.group is None else self.group.rows.get(number, {}).get(rank)
        record = self.evidence.records.get(rank)
        is_now = operation is None or operation.is_pending
        stack = record.stack if record is not None and is_now else ()
        if operation is None:
            state = self._list_states(number).get(rank)
            what = f"#{number} {state.value}" if state is not None else "no collective"
        else:
            what = f"#{number} {operation.label} {operation.state.value}"
            stack = stack or operation.frames
        detail = f", {record.error}" if record is not None and record.error else ""
        self._stack_title = clean(f"rank {rank}: {what}{detail}")
        self._lines = [clean(f"{each.name}  {each.place}  {each.file}") for each in stack]
        self._stack.set_row_count(len(self._lines))
        self.rows.repaint()

    def _build_stack_header(self, width: int) -> list[TextRun]:
        return [(truncate(f" {self._stack_title}", width), self.rows.palette.strong)]

    def _build_line(self, index: int, width: int, selected: bool) -> list[TextRun]:
        is_marked = selected and self._is_stack_open
        style = self.rows.palette.active if is_marked else self.rows.palette.text
        return [(truncate(f" {'▶' if is_marked else ' '} {self._lines[index]}", width), style)]

    # -- keys ---------------------------------------------------------------------------------------------------

    def _move_to(self, row: int) -> None:
        if self._is_stack_open:
            before = self._stack.cursor
            self._stack.move_to(row - self.rows.cursor + before)
            self.show_message("" if self._stack.cursor != before else "no more lines")
            return
        super()._move_to(row)

    def action_edge(self, last: bool) -> None:
        count = len(self._lines) if self._is_stack_open else self.rows.count
        self._move_to(self.rows.cursor + count if last else self.rows.cursor - count)

    def action_collective(self, distance: int) -> None:
        column = self.column + distance
        if not 0 <= column < len(self._numbers):
            self.show_message(
                f"the {'last' if distance > 0 else 'first'} collective" if self._numbers else "no collectives"
            )
            return
        self.column = column
        self.show_message("")
        self.handle_cursor_move()

    def action_disagree(self, distance: int) -> None:
        """Go to the next cell that disagrees: by collective, then by rank."""
        cells = [
            (column, row)
            for column, number in enumerate(self._numbers)
            for row, rank in enumerate(self._members)
            if self._list_states(number).get(rank) in DISAGREEING
        ]
        here = (self.column, self.rows.cursor)
        if not cells:
            more = ": } shows the next group" if len(self._groups) > 1 else ""
            self.show_message(f"all ranks of this group have called the same{more}")
            return
        if distance > 0:
            column, row = next((each for each in cells if each > here), cells[0])
        else:
            column, row = next((each for each in reversed(cells) if each < here), cells[-1])
        self.column = column
        self.rows.move_to(row)
        self.handle_cursor_move()
        self.show_message(f"disagreement {cells.index((column, row)) + 1:,} of {len(cells):,}")

    def action_group(self, distance: int) -> None:
        if len(self._groups) < 2:
            self.show_message("only one process group is recorded" if self._groups else "no process group is recorded")
            return
        self._at = (self._at + distance) % len(self._groups)
        self._show_group()
        self.handle_cursor_move()
        self.show_message(clean(self._groups[self._at].label))

    def action_stack(self) -> None:
        self._is_stack_open = not self._is_stack_open
        self._arrange(self.size)
        self._stack.repaint()
        self.show_message("the stack, innermost first; enter: the table" if self._is_stack_open else "the table")

    def action_back(self) -> None:
        if self._is_stack_open:
            self.action_stack()
        else:
            self.show_message("nothing to leave; q: quit")

    def action_find(self) -> None:
        self._open_prompt(FIND, "a number", "")

    def submit(self, text: str) -> str:
        """Go to a rank. Returns what is wrong with the text, else ""."""
        number = text.strip().removeprefix("rank").strip()
        if not number.isascii() or not number.isdecimal() or int(number[:9]) not in self._members:
            return f"no rank {text!r} in this group"
        self.rows.move_to(self._members.index(int(number[:9])))
        self.handle_cursor_move()
        return ""

    def action_copy(self, everything: bool) -> None:
        if everything:
            self.copy_text(self.rows.visible_text(120), "the table")
        else:
            self.copy_text(
                "\n".join([self.hang.sentence, self._stack_title, *self._lines]), "the verdict and the stack"
            )
