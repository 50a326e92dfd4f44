"""Goldens at six sizes: the list of a remote folder, and the progress of loading the ranks of a run."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from textual.widgets import OptionList

from tests.helpers.explorer_app import settled
from tests.helpers.golden_files import at_every_size, compare_golden, text_on_screen
from torchprof_tui.app import TorchprofApp
from torchprof_tui.trace.loading.opener import SingleTraceOpener
from torchprof_tui.trace.loading.progress import FAILED_SHARE, Progress, RanksProgress
from torchprof_tui.trace.specs.address import ListedTrace
from torchprof_tui.ui.start.loading_screen import LoadingScreen
from torchprof_tui.ui.start.start_screen import StartScreen


@pytest.fixture(autouse=True)
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr(StartScreen, "_search_traces", lambda _: None)  # list no traces of the current folder


def listing() -> list[ListedTrace]:
    """Two runs with several ranks, one of them recorded twice, and single traces, one with control characters."""
    now = time.time()
    return [
        *(ListedTrace(f"gpu-box:runs/ddp/rank{k}.pt.trace.json.gz", 3_400_000 + k, now - 3 * 3600) for k in range(8)),
        *(
            ListedTrace(
                f"gpu-box:runs/tb/worker{k}.{17 * 10**11 + later + k}.pt.trace.json", 9 << 20, now - 5e5 + later
            )
            for later in (0, 9000)
            for k in range(2)
        ),
        ListedTrace("gpu-box:runs/[b]\x1b[31mred.json", 12, now - 400 * 86400),
        ListedTrace("gpu-box:runs/unknown.json", None, 0.0),
    ]


@at_every_size
async def test_a_remote_folder(size: tuple[int, int]) -> None:
    app = TorchprofApp()
    async with app.run_test(size=size) as pilot:
        await app.switch_screen(StartScreen(remote_folder=("gpu-box:runs/", listing()), folder=Path("/nowhere")))
        await settled(pilot)
        text = text_on_screen(app.screen)
        compare_golden("elsewhere", size, text)
        assert "\x1b" not in text
        rows = [str(option.prompt) for option in app.screen.query_one(OptionList).options]
        assert [row.split()[0] for row in rows[1:4]] == [
            "ddp/rank*",
            "tb/worker*.1700000009000",
            "tb/worker*.1700000000000",
        ]


async def test_a_run_opens_by_its_pattern_or_by_its_files(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen: list[list[str]] = []
    monkeypatch.setattr(TorchprofApp, "_open", lambda _, *specs: chosen.append(list(specs)))
    app = TorchprofApp()
    async with app.run_test(size=(120, 40)) as pilot:
        await app.switch_screen(StartScreen(remote_folder=("gpu-box:runs/", listing())))
        await pilot.pause()
        await pilot.press("enter", "down", "enter", "down", "down", "enter")
        await pilot.pause()
    assert chosen == [
        ["gpu-box:runs/ddp/rank*.pt.trace.json.gz"],
        [f"gpu-box:runs/tb/worker{k}.170000000900{k}.pt.trace.json" for k in range(2)],
        ["gpu-box:runs/ddp/rank0.pt.trace.json.gz"],
    ]


@at_every_size
async def test_loading_the_ranks_of_a_run(size: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LoadingScreen, "_load", _load_nothing)
    shares = (1.0, 1.0, 0.99, 0.5, 0.13, 0.12, FAILED_SHARE, *(0.0,) * 57)
    app = TorchprofApp(SingleTraceOpener("gpu-box:runs/ddp/rank*.json"))
    async with app.run_test(size=size) as pilot:
        screen = app.screen
        assert isinstance(screen, LoadingScreen)
        screen._started_at = time.monotonic() + 3600  # so that it shows no estimated time
        screen._store_progress(RanksProgress("reading", 14_000_000, 217_600_000, 123_456, shares))
        screen._show_progress()
        await pilot.pause()
        text = text_on_screen(app.screen)
        compare_golden("ranks-coming", size, text)
        assert "██▇▄▁▁×·" in text
        assert "2 of 64 ranks · 14.0 of 217.6 MB · 123,456 events" in text


async def _load_nothing(self: LoadingScreen) -> None:
    """Do nothing, so that the test sets the progress itself."""


async def test_one_trace_has_no_cells_of_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LoadingScreen, "_load", _load_nothing)
    app = TorchprofApp(SingleTraceOpener("trace.json"))
    async with app.run_test(size=(80, 24)) as pilot:
        screen = app.screen
        assert isinstance(screen, LoadingScreen)
        screen._store_progress(Progress("reading", 5, 10, 1))
        screen._show_progress()
        await pilot.pause()
        lines = text_on_screen(app.screen).splitlines()
        bar = next(k for k, line in enumerate(lines) if "50%" in line)
        assert "events" in lines[bar + 1]
