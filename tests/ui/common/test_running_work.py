"""Work that takes long is shown in the status line, and in the progress bar of the terminal."""

from __future__ import annotations

import io
from time import perf_counter

import pytest

from tests.helpers.explorer_app import explorer, settled, text_of, two_steps
from torchprof_tui.program.terminal_progress import TerminalProgress
from torchprof_tui.ui.common.debounced_worker import DebouncedWorker, RunningWork
from torchprof_tui.ui.common.status_line import StatusLine


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


async def test_work_is_shown_after_a_while_and_until_it_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("TMUX", raising=False)
    monkeypatch.delenv("NO_PROGRESS", raising=False)
    terminal = Terminal()
    async with explorer(two_steps(), (120, 40)) as (screen, pilot):
        await settled(pilot)
        bar = TerminalProgress(terminal)
        monkeypatch.setattr(
            "torchprof_tui.ui.common.debounced_worker.find_progress", lambda app: bar if app is screen.app else None
        )
        work = RunningWork(screen)
        number = work.begin("chain")
        work._show()
        await pilot.pause()
        assert "finding the chain" not in text_of(screen)
        assert terminal.getvalue() == ""
        work._started[number] = "chain", perf_counter() - 5
        work._show()
        await pilot.pause()
        assert "finding the chain … 5 s" in text_of(screen)
        assert terminal.getvalue() == "\x1b]9;4;3\x1b\\"
        work.end(number)
        await pilot.pause()
        assert "finding the chain" not in text_of(screen)
        assert terminal.getvalue().endswith("\x1b]9;4;0\x1b\\")


async def test_a_worker_notes_its_work_and_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    async with explorer(two_steps(), (120, 40)) as (screen, pilot):
        await settled(pilot)
        worker = DebouncedWorker(screen)
        seen: list[int] = []
        shown: list[str] = []
        monkeypatch.setattr(StatusLine, "show_work", lambda line, text: shown.append(text))

        def work() -> None:
            seen.append(len(worker._running._started))

        worker.submit("chain", work)
        await settled(pilot)
        await pilot.pause()
        assert seen == [1]
        assert shown == []  # the status line is not even looked for
        assert not worker._running._started
        assert worker._running._timer is None
