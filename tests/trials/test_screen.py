"""Test the screen of `try`: rows that fill, the line of progress, how it is stopped, and what it leaves."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import AsyncIterator, Generator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from textual.pilot import Pilot

from tests.helpers.explorer_app import settled, until
from tests.helpers.long_run import keep_some
from tests.helpers.paths import SAMPLES
from tests.helpers.warm_program import fork_torch
from torchprof_try import program_process
from torchprof_try.estimates import Saving
from torchprof_try.patches import Places
from torchprof_try.program_process import TrialsStopped
from torchprof_try.trials import BASELINE, TrialRequest, TrialRow, Trials
from torchprof_try.ui.try_screen import TryScreen
from torchprof_tui.trace.core.errors import TraceError
from torchprof_tui.ui.common.compare_asked import CompareAsked
from torchprof_tui.ui.common.ordered_keys import HelpApp, OrderedKeysApp

BEFORE = TrialRow(BASELINE, "the program as it is", state="measured", step=0.02, memory=1 << 28)
WAITING = [
    TrialRow("tf32", "TF32 for float32 matmuls", "torch.set_float32_matmul_precision('high')", predicted=0.3),
    TrialRow("bf16", "bf16 autocast", "with torch.autocast():\n    output = model(batch)"),
]
MEASURED = replace(
    WAITING[0], state="measured", saving=Saving(0.25, 0.2, 0.3), step=0.015, memory=1 << 28, loss="within rounding"
)
FAILED = replace(WAITING[1], state="failed", why="out of memory on the GPU")


class ScriptedTrials(Trials):
    """Trials whose rows come from a list, one set for each time that `more` is set."""

    def __init__(self, *tables: list[TrialRow], problem: str = "") -> None:
        super().__init__(TrialRequest(("train.py", "--lr", "1")), device="CPU")
        self.tables, self.problem = tables, problem
        self.more, self.stopped, self.closed = threading.Semaphore(0), threading.Event(), threading.Event()

    def run(self) -> Generator[str, None, None]:
        for rows in self.tables:
            self.rows = [BEFORE, *rows]
            yield "line"
            self.more.acquire()
            if self.stopped.is_set():
                raise TrialsStopped
        if self.problem:
            raise TraceError(self.problem)
        self.is_complete = True

    def record(self, name: str) -> tuple[str, str]:
        assert name == "tf32"
        return str(SAMPLES / "article_64_cold.pt.trace.json.gz"), str(SAMPLES / "article_64_warm.pt.trace.json.gz")

    def stop(self) -> None:
        self.stopped.set()
        self.more.release()

    def close(self) -> None:
        self.closed.set()


class TryScreenApp(OrderedKeysApp, HelpApp):
    def __init__(self, trials: Trials) -> None:
        super().__init__()
        self.trials, self.copied = trials, ""
        self.asked: list[CompareAsked] = []

    def on_mount(self) -> None:
        self.push_screen(TryScreen(self.trials))

    def on_compare_asked(self, message: CompareAsked) -> None:
        self.asked.append(message)

    def copy_to_clipboard(self, text: str) -> None:
        self.copied = text


@asynccontextmanager
async def opened(trials: Trials, size: tuple[int, int] = (160, 40)) -> AsyncIterator[tuple[TryScreen, Pilot[None]]]:
    app = TryScreenApp(trials)
    async with app.run_test(size=size) as pilot:
        await settled(pilot)
        assert isinstance(app.screen, TryScreen)
        yield app.screen, pilot
        app.screen.close_trials()


def read_rows(screen: TryScreen, width: int = 160) -> list[str]:
    return screen.rows.visible_text(width).split("\n")


@pytest.mark.parametrize(("size", "has_patch"), [((80, 24), False), ((160, 48), True), ((240, 60), True)])
async def test_rows_fill_in_their_order(size: tuple[int, int], has_patch: bool) -> None:
    trials = ScriptedTrials(WAITING, [MEASURED, WAITING[1]], [MEASURED, FAILED])
    async with opened(trials, size) as (screen, pilot):
        await until(pilot, lambda: screen.rows.count == 2)
        assert [each.split()[0] for each in read_rows(screen, size[0] - 1)[1:]] == ["tf32", "bf16"]
        assert "waiting" in read_rows(screen, size[0])[1]
        trials.more.release()
        await until(pilot, lambda: "+25.0% ± 5.0%" in read_rows(screen, size[0])[1])
        line = read_rows(screen, size[0])[1]
        assert "≤ 30%" in line
        assert "within rounding" in line
        assert ("set_float32" in line) is has_patch
        assert screen._title.message == "tf32 (TF32 for float32 matmuls): a step is 25% shorter"
        assert "esc: stop" in screen._progress.message
        trials.more.release()
        await until(pilot, lambda: "failed: out of" in read_rows(screen, size[0])[2])
        trials.more.release()
        await until(pilot, lambda: not screen.is_trying)
        assert screen._progress.message.startswith("○ all is tried")


async def test_escape_keeps_the_table_and_says_so() -> None:
    trials = ScriptedTrials(WAITING, [MEASURED, WAITING[1]], [MEASURED, FAILED])
    async with opened(trials) as (screen, pilot):
        trials.more.release()
        await until(pilot, lambda: "+25.0%" in read_rows(screen)[1])
        await pilot.press("escape")
        await until(pilot, lambda: not screen.is_trying)
        assert "ended early" in screen._progress.message
        assert "+25.0%" in read_rows(screen)[1]
        assert "waiting" in read_rows(screen)[2]
        await pilot.press("escape")
        await settled(pilot)
        assert "nothing runs" in screen._status.message


async def test_a_program_that_cannot_be_tried_says_why() -> None:
    async with opened(ScriptedTrials(problem="it would change \x1b[31mdata.txt")) as (screen, pilot):
        await until(pilot, lambda: not screen.is_trying)
        assert screen.problem.startswith("it would change")
        assert "\x1b" not in "".join(segment.text for segment in screen._title.paint(0, 100))


async def test_leaving_ends_the_trials_and_removes_their_files() -> None:
    trials = ScriptedTrials(WAITING, WAITING)
    async with opened(trials) as (screen, pilot):
        await until(pilot, lambda: screen.rows.count == 2)
        screen.dismiss()
        await settled(pilot)
        await until(pilot, lambda: trials.closed.is_set())
        assert trials.stopped.is_set()
        pilot.app.push_screen(TryScreen(ScriptedTrials()))  # for the end of the fixture
        await settled(pilot)


async def test_copying_takes_what_to_write() -> None:
    async with opened(ScriptedTrials(WAITING)) as (screen, pilot):
        await until(pilot, lambda: screen.rows.count == 2)
        await pilot.press("down", "y")
        await settled(pilot)
        assert isinstance(pilot.app, TryScreenApp)
        assert pilot.app.copied == "with torch.autocast():\n    output = model(batch)\n"
        assert screen._detail.text().strip().startswith("bf16: bf16 autocast")


@pytest.mark.parametrize("key", keep_some(["P", "e"], 1))
async def test_the_patch_is_written_as_a_new_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, key: str) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("import torch\n\nprint(torch)\n")
    trials = ScriptedTrials([MEASURED, WAITING[1]])
    trials.places = Places(str(tmp_path / "train.py"))
    async with opened(trials) as (screen, pilot):
        await until(pilot, lambda: screen.rows.count == 2)
        await pilot.press(key, "enter")
        await settled(pilot)
        text = (tmp_path / "tf32.patch").read_text()
        assert text.startswith(
            "# tf32: TF32 for float32 matmuls; saved 25% of a step, losses within rounding\n--- a/train.py"
        )
        assert "train.py:2:" in screen._detail.text()
        await pilot.press(key, "enter")
        await settled(pilot)
        assert screen._prompt.is_open  # it exists already
        await pilot.press("escape", "down", key, "enter")
        await settled(pilot)
        assert "# belongs around the call of the model" in (tmp_path / "bf16.patch").read_text()
    assert (tmp_path / "train.py").read_text() == "import torch\n\nprint(torch)\n"


async def test_enter_compares_the_traces_after_the_trials() -> None:
    trials = ScriptedTrials([MEASURED, FAILED])
    async with opened(trials) as (screen, pilot):
        app = pilot.app
        assert isinstance(app, TryScreenApp)
        await until(pilot, lambda: screen.rows.count == 2)
        await pilot.press("enter")
        await settled(pilot)
        assert "would disturb it" in screen._status.message
        await pilot.press("escape")
        await until(pilot, lambda: not screen.is_trying)
        await pilot.press("enter")
        await until(pilot, lambda: bool(app.asked))
        assert app.asked[0].request.other == str(SAMPLES / "article_64_warm.pt.trace.json.gz")
        assert app.asked[0].label == "the program as it is"
        assert len(app.asked[0].trace)
        await pilot.press("down", "enter")
        await settled(pilot)
        assert screen._status.message == "nothing to compare: out of memory on the GPU"


SLEEPER = """
import os, sys, time, torch
read, write = os.pipe()
child = os.fork()
if child == 0:
    os.setsid()
    os.write(write, b".")
    time.sleep(600)
os.read(read, 1)
print(os.getpid(), child, file=open("new.txt", "w"))
time.sleep(600)
"""


@pytest.mark.slow
async def test_a_real_process_ends_with_its_children_and_its_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sleeper.py").write_text(SLEEPER)
    monkeypatch.chdir(tmp_path)
    fork_torch(monkeypatch, program_process)
    trials = Trials(TrialRequest((str(tmp_path / "sleeper.py"),)))
    new = tmp_path / "new.txt"
    async with opened(trials) as (screen, pilot):
        await until(pilot, lambda: new.exists() and new.read_text().endswith("\n"))
        pids = [int(word) for word in new.read_text().split()]
        assert all(map(_is_running, pids))
        await pilot.press("escape")
        await until(pilot, lambda: not screen.is_trying)
        assert sorted(os.listdir(tmp_path)) == ["sleeper.py"]
    for _ in range(100):  # killed, and gone a little later
        if not any(map(_is_running, pids)):
            break
        time.sleep(0.1)
    assert not any(map(_is_running, pids))


def _is_running(pid: int) -> bool:
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return status.rpartition(")")[2].split()[0] != "Z"  # which its parent has not asked for yet
