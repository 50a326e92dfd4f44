"""The attach screen by its keys, around a session that answers at once."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot

from tests.helpers.explorer_app import settled, until
from tests.helpers.golden_files import text_on_screen
from torchprof_attach.command.main import NEXT_TIME, NEXT_TIME_HANG
from torchprof_attach.session import Job, Recorded, Say, Wish
from torchprof_attach.ui.attach_screen import NOT_LISTED, AttachScreen, JobsListed
from torchprof_tui.ui.common.ordered_keys import HelpApp, OrderedKeysApp

JOBS = [
    Job("localhost", 10, 1, 0, 2, "a:1", "python train.py --lr 1", "kineto", step_seconds=0.25),
    Job("gpu7", 11, 1, 1, 2, "a:1", "python train.py \x1b[31m", "kineto", gpu_memory_bytes=3 << 30, gpu_load_share=0.5),
    Job("localhost", 12, 1, None, None, "pid 12", "python other.py", "", "it was started without KINETO_USE_DAEMON=1"),
]


class FakeSession:
    """Answers as a session does. `gate`: recordings wait for it."""

    def __init__(self, jobs: Sequence[Job]) -> None:
        self.names, self.hosts, self.problems = ("localhost", "gpu7"), {"localhost": 0, "gpu7": 0}, {"gpu8": "no route"}
        self.jobs, self.recorded = list(jobs), list[list[int]]()
        self.gate = threading.Event()
        self.is_cancelled = False
        self.still_seconds = 0.0
        self.way_to_dump: str | None = None

    def list_jobs(self, inject: bool = False) -> list[Job]:
        return list(self.jobs)

    def record(self, jobs: Sequence[Job], wish: Wish, out: Path, say: Say) -> list[Recorded]:
        self.recorded.append([job.pid for job in jobs])
        say("rank 0: recording")
        assert self.gate.wait(20)
        if self.is_cancelled:
            return [Recorded(job, problem="cancelled") for job in jobs]
        content = {"steps": [1, 2, 3]}
        return [Recorded(job, "kineto", (f"{out}/{job.pid}",), content=content, is_aligned=True) for job in jobs]

    def read_progress(self, jobs: Sequence[Job]) -> dict[tuple[str, int, int], tuple[float, str]]:
        return {job.key: (self.still_seconds, "no step ended") for job in jobs}

    def dump(self, job: Job, folder: Path) -> Recorded:
        folder.mkdir(parents=True, exist_ok=True)
        if self.way_to_dump is None:
            return Recorded(job, problem="py-spy is not installed")
        return Recorded(job, "dump", (self.way_to_dump,))

    def cancel(self) -> None:
        self.is_cancelled = True
        self.gate.set()


class ScreenApp(OrderedKeysApp, HelpApp):
    def __init__(self, session: Any) -> None:
        super().__init__()
        self.session, self.asked, self.copied = session, list[tuple[str, ...]](), ""
        self.hangs, self.told = list[Path](), list[str]()

    def on_mount(self) -> None:
        next_time = (NEXT_TIME, NEXT_TIME_HANG)
        self.push_screen(AttachScreen(self.session, lambda: None, Wish(), Path("attached"), next_time, 30))

    def notify(self, message: str, **_: Any) -> None:
        self.told.append(message)

    def on_attach_screen_hang_asked(self, message: AttachScreen.HangAsked) -> None:
        self.hangs.append(message.folder)

    def on_attach_screen_traces_asked(self, message: AttachScreen.TracesAsked) -> None:
        self.asked.append(message.paths)

    def copy_to_clipboard(self, text: str) -> None:
        self.copied = text


@asynccontextmanager
async def attach_screen(
    jobs: Sequence[Job] = JOBS, size: tuple[int, int] = (120, 30)
) -> AsyncIterator[tuple[AttachScreen, Pilot[None], FakeSession, ScreenApp]]:
    session = FakeSession(jobs)
    app = ScreenApp(session)
    async with app.run_test(size=size) as pilot:
        await pilot.pause()
        screen = app.screen
        assert isinstance(screen, AttachScreen)
        await until(pilot, lambda: screen.rows.empty_text != "looking for jobs …")
        await settled(pilot)
        yield screen, pilot, session, app
        session.gate.set()


async def test_enter_records_the_rank_of_the_cursor_and_opens_its_trace() -> None:
    async with attach_screen() as (screen, pilot, session, app):
        await pilot.press("down", "enter")
        await until(pilot, lambda: session.recorded == [[11]])
        await pilot.press("enter")
        assert "esc stops waiting" in screen._status.message
        session.gate.set()
        await until(pilot, lambda: bool(app.asked))
        assert len(app.asked[0]) == 1
        assert not screen.is_recording


async def test_keys_typed_before_the_list_is_on_the_screen_record_nothing() -> None:
    session = FakeSession(JOBS)
    app = ScreenApp(session)
    async with app.run_test():
        screen = app.screen
        assert isinstance(screen, AttachScreen)
        screen._is_left.set()  # lists no more
        screen._is_listed, screen.jobs = False, []
        screen.on_jobs_listed(JobsListed(JOBS[1:]))
        screen.action_record_one()
        screen.action_take_dump()
        assert not screen.is_recording
        assert screen._status.message == NOT_LISTED


async def test_r_records_all_ranks_of_the_job_and_opens_them_together() -> None:
    async with attach_screen() as (screen, pilot, session, app):
        session.gate.set()
        await pilot.press("r")
        await until(pilot, lambda: bool(app.asked))
        assert session.recorded == [[10, 11]]
        assert len(app.asked[0]) == 2
        assert screen._status.message == "2 ranks, the same iterations"


async def test_a_process_without_a_way_says_why_and_what_to_set() -> None:
    async with attach_screen() as (screen, pilot, session, _app):
        await pilot.press("end")
        await settled(pilot)
        shown = " ".join(text_on_screen(screen).split())
        for words in ("shell: KINETO_USE_DAEMON=1 python", "Slurm: sbatch", "Kubernetes: env:", "torchrun: KINETO"):
            assert words in shown
        await pilot.press("enter")
        assert screen._status.message.startswith("pid 12 cannot be recorded: it was started without")
        assert not session.recorded


async def test_escape_stops_waiting() -> None:
    async with attach_screen() as (screen, pilot, session, app):
        await pilot.press("escape")
        assert screen._status.message == "nothing is being recorded; q: quit"
        await pilot.press("enter")
        await until(pilot, lambda: bool(session.recorded))
        await pilot.press("escape")
        await until(pilot, lambda: not screen.is_recording)
        assert "cancelled" in screen._status.message
        assert not app.asked


async def test_the_cursor_stays_on_its_process_when_others_come() -> None:
    async with attach_screen() as (screen, pilot, session, _app):
        await pilot.press("down")
        session.jobs.insert(0, Job("localhost", 9, 1, way="kineto", job="pid 9", command="python a.py"))
        await until(pilot, lambda: len(screen.jobs) == 4)
        job = screen._cursor_job
        assert job is not None
        assert job.pid == 11


@pytest.mark.parametrize("size", [(80, 24), (120, 30), (240, 60)])
async def test_every_process_is_on_the_screen_escaped(size: tuple[int, int]) -> None:
    async with attach_screen(size=size) as (screen, _pilot, _session, _app):
        shown = text_on_screen(screen)
        assert "2 of 3 processes can be recorded" in shown
        assert "gpu8: no route" in shown
        assert "\x1b" not in shown
        for text in ("kineto", "none", "50 %", " GB", "4 "):
            assert text in shown


async def test_copies_are_the_command_and_the_list() -> None:
    async with attach_screen() as (_screen, pilot, _session, app):
        await pilot.press("y")
        assert app.copied == "torchprof-tui attach 10 --steps 5"
        await pilot.press("Y")
        assert app.copied.count("\n") == 4


async def test_no_process_says_what_to_do() -> None:
    async with attach_screen(jobs=()) as (screen, _pilot, _session, _app):
        assert "No process of yours uses torch here; next time, set KINETO_USE_DAEMON=1" in " ".join(
            text_on_screen(screen).split()
        )


async def test_e_takes_what_the_ranks_of_the_job_wait_for_and_opens_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    async with attach_screen() as (screen, pilot, session, app):
        session.way_to_dump = "stacks"
        await pilot.press("e")
        await until(pilot, lambda: bool(app.hangs))
        assert app.hangs[0].parent == Path("attached")
        assert not screen.is_recording
        await pilot.press("end", "e")  # a process that cannot be recorded can be asked
        await until(pilot, lambda: len(app.hangs) == 2)
        assert "torchprof-tui hang attached/other-" in screen._status.message


async def test_a_job_that_hangs_is_told_and_what_to_set_next_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("torchprof_attach.hang_watch.MAX_POLL_SECONDS", 0.01)
    async with attach_screen() as (screen, pilot, session, app):
        assert "watching for hangs of 30 s" in text_on_screen(screen)
        assert not app.told
        session.still_seconds = 31
        await until(pilot, lambda: bool(app.told))
        lines = app.told[0].splitlines()
        assert lines[:2] == ["nothing could be taken", "rank 0: py-spy is not installed"]
        assert NEXT_TIME_HANG in lines
        assert not app.hangs  # nothing opens unasked
