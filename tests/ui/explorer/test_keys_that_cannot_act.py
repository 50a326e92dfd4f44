"""A key that cannot act says why: the action of every key, in every state, changes something or returns a message."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from itertools import product

import pytest
from textual.binding import Binding
from textual.pilot import Pilot
from textual.worker import WorkerCancelled

from tests.helpers.explorer_app import explorer, settled, two_steps
from tests.helpers.long_run import keep_some
from tests.helpers.trace_builder import cpu, step, trace
from torchprof_tui.trace.model.trace import Trace
from torchprof_tui.ui.common.keys import LANES
from torchprof_tui.ui.common.painted_widget import TextPanel
from torchprof_tui.ui.common.status_line import StatusLine
from torchprof_tui.ui.explorer.explorer_screen import ExplorerScreen
from torchprof_tui.ui.flame.flame_screen import FlameScreen
from torchprof_tui.ui.table.table_screen import TableScreen
from torchprof_tui.ui.tree.tree_screen import TreeScreen

pytestmark = pytest.mark.painted


def cpu_only() -> Trace:
    return trace(step(0, 0, 50), cpu("aten::mm", 10, 20), step(1, 50, 50), cpu("aten::mm", 60, 20))


TRACES: dict[str, Callable[[], Trace]] = {
    "empty": trace,
    "one event": lambda: trace(cpu("aten::mm", 0, 20)),
    "CPU only": cpu_only,
    "two steps": two_steps,
}
PREPARATIONS: dict[str, tuple[str, ...]] = {
    "nothing selected": (),
    "first event": ("right", "home"),
    "last event": ("right", "end", *("right",) * 4, *("down",) * 6),
    "details": ("right", "i", "i"),
    "cheatsheet": ("c",),
    "chain": ("right", "l"),
    "doctor": (":", *"doctor", "enter"),
    "no panel": ("i",),
    "marked": ("right", "m", "m"),
    "zoomed in": ("right", *("W",) * 12),
}
OPENING_ACTIONS = (
    "what_if",
    "table",
    "tree",
    "flame",
    "memory",
    "child",
    "learn",
    "slice",
    "compare",
    "search",
    "go_to",
    "ask_filter",
    "ask_export",
)


def actions_of(bindings: object, left_out: Iterable[str]) -> list[str]:
    assert isinstance(bindings, list)
    actions = [binding.action for binding in bindings if isinstance(binding, Binding)]
    return [action for action in dict.fromkeys(actions) if action.partition("(")[0] not in left_out]


def fingerprint(screen: ExplorerScreen) -> tuple[object, ...]:
    """Return everything that a key of the explorer may change."""
    state = screen.view_state
    view = (state.viewport, state.selected, state.lane, state.mark, state.search.matches, state.lane_view.top)
    panels = tuple(panel._top for panel in screen.query(TextPanel))
    controller = screen._panel_controller
    shown = (screen._dock.active_name, screen.details_open, controller.scopes.mode, len(screen.app.screen_stack))
    finding = controller.cheatsheet_panel.finding
    cursors = (controller.doctor_panel.remark, finding and finding.id, controller.chain_panel._on_line)
    return (*view, state.lane_view.arrangement, *panels, *shown, *cursors, controller._timeline._labels_visible)


def collect_messages(status: StatusLine, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list to which each message of the status line is added; a refresh clears the line soon."""
    messages: list[str] = []
    show = status.show_message

    def collect(message: str, is_warning: bool = False) -> None:
        messages.extend([message] if message else [])
        show(message, is_warning)

    monkeypatch.setattr(status, "show_message", collect)
    return messages


CASES = [("two steps", state) for state in PREPARATIONS] + [
    (shown, state) for shown in ("empty", "one event", "CPU only") for state in ("nothing selected", "first event")
]


@pytest.mark.parametrize(("shown", "state"), keep_some(CASES, 1))
async def test_each_key_of_the_explorer_acts_or_says_why(
    shown: str, state: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with explorer(TRACES[shown]()) as (screen, pilot):
        await settled(pilot)
        await pilot.press(*PREPARATIONS[state])
        await settled(pilot)
        messages = collect_messages(screen._status, monkeypatch)
        silent = []
        for action in actions_of(LANES, OPENING_ACTIONS):
            for time in ("first", "again"):
                messages.clear()
                before = fingerprint(screen)
                await screen.run_action(action)
                await pilot._wait_for_screen()
                if fingerprint(screen) == before and not messages:
                    silent.append((action, time))
        assert silent == [], silent


@pytest.mark.parametrize(("shown", "key"), keep_some(product(TRACES, "tTF"), 2))
async def test_each_key_of_a_child_screen_acts_or_says_why(
    shown: str, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with explorer(TRACES[shown]()) as (lanes, pilot):
        await pilot.press(key)
        await settled(pilot)
        screen = lanes.app.screen
        assert isinstance(screen, TableScreen | TreeScreen | FlameScreen)
        messages = collect_messages(screen._status, monkeypatch)
        silent = []
        for action in actions_of(screen.BINDINGS, (*OPENING_ACTIONS, "back", "leave", "app.help", "app.quit")):
            for time in ("first", "again"):
                if lanes.app.screen is not screen:  # the key showed an event on the lanes
                    break
                messages.clear()
                before = painted_rows(screen)
                await screen.run_action(action)
                await settled_soon(pilot)
                if lanes.app.screen is screen and painted_rows(screen) == before and not messages:
                    silent.append((action, time))
        assert silent == [], silent


def painted_rows(screen: TableScreen | TreeScreen | FlameScreen) -> str:
    """Return what is painted and how, without the status line: frames of the flame graph are areas of colour."""
    strips = screen._compositor.render_strips()[:-1]
    return "\n".join(f"{text}{style}" for strip in strips for text, style, _ in strip)


async def settled_soon(pilot: Pilot[None]) -> None:
    with suppress(WorkerCancelled):  # a later move cancels the detail of the row before
        await pilot.app.workers.wait_for_complete()
    await pilot.pause()
