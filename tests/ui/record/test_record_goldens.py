"""Goldens at six sizes: the record form with earlier runs, and the recording screen from its start to its end."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.helpers.explorer_app import settled
from tests.helpers.golden_files import cases_at_every_size, compare_golden, text_on_screen
from torchprof_tui.app import TorchprofApp
from torchprof_tui.runs.history import PastRun, StoredRequest
from torchprof_tui.runs.recording_request import RecordingRequest
from torchprof_tui.runs.run_result import RunResult
from torchprof_tui.ui.record import record_screen, recording_screen
from torchprof_tui.ui.record.record_screen import RecordScreen
from torchprof_tui.ui.record.recording_screen import RecordingScreen

RUNS = "/home/ada/training/torchprof_runs"
COMMAND = ("python", "train.py", "--config", "configs/small.yaml", "--batch-size", "32", "--epochs", "1")
TRACE = f"{RUNS}/train-20260102-030405/train.pt.trace.json.gz"


def past_run(command: tuple[str, ...], age: float, traces: tuple[str, ...], status: int = 0) -> PastRun:
    folder = f"{RUNS}/{Path(command[-1]).stem}"
    stored = StoredRequest(RecordingRequest(command), "/home/ada/training", f"{folder}/request.json", is_own=True)
    result = RunResult(folder, traces, (), status, 12.5, "stopped", command)
    return PastRun(stored, time.time() - age, result)


@pytest.fixture(autouse=True)
def known_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the form find the same earlier runs, interpreter and GPU on every machine."""
    runs = [
        past_run(COMMAND, 600, (TRACE,)),
        past_run(("matmul_add", "--size", "64"), 7200, (TRACE,), status=1),
        past_run(("torchrun", "--nproc_per_node", "4", "ddp.py"), 3 * 86400, ()),
        past_run(("train_gpt",), 9 * 86400, (TRACE,)),
    ]
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr(record_screen, "list_past_runs", lambda limit: runs[:limit])
    monkeypatch.setattr(record_screen, "recall_interpreter", lambda: None)
    monkeypatch.setattr(record_screen, "is_gpu_present", lambda _: True)


FORM_CASES = {
    "record": (),
    "record-past-run": ("home", "enter"),
    "record-options": ("tab", *"python train.py", "tab", "down", "down", "5"),
    "record-no-command": ("ctrl+r",),
}


@cases_at_every_size("name", FORM_CASES)
async def test_record_form(name: str, size: tuple[int, int]) -> None:
    app = TorchprofApp()
    async with app.run_test(size=size) as pilot:
        await app.push_screen(RecordScreen(environment={}))
        await settled(pilot)
        for key in FORM_CASES[name]:
            await pilot.press(key)
        await settled(pilot)
        drawn = text_on_screen(app.screen)
    compare_golden(name, size, drawn)


class LiteralRecording:
    """A recording that stands still in one state, without a process."""

    output = b"step 1: loss 4.18\r\nstep 2: loss 4.05\r\n"
    phase_text = "recording, step 2 of 3"
    has_ended = is_saving = save_abandoned = table_skipped = False
    seconds, interrupts, last_log = 4.2, 0, ""
    choices: Mapping[str, str] = {}
    ended: RunResult | None = None

    def __init__(self, *_: object) -> None:
        self._rest = self.output

    def start(self, *_: object) -> None:
        """Start nothing."""

    resize = close = save_output = start

    def poll(self) -> tuple[bytes, int]:
        data, self._rest = self._rest, b""
        return data, 0

    def result(self) -> RunResult | None:
        return self.ended


class Asking(LiteralRecording):
    phase_text = "asking: this trace will be large"
    output = b"torchprof: a step makes about 700 MB of JSON\r\n"
    choices = {"y": "record 3 steps, about 2,100 MB", "f": "record 1 step, about 700 MB", "n": "stop, record nothing"}


class Stopping(LiteralRecording):
    phase_text, is_saving, interrupts = "saving: 120 of about 400 MB, 20 s left", True, 1


class Finished(LiteralRecording):
    has_ended, phase_text, seconds = True, "done", 12.5
    ended = RunResult(f"{RUNS}/train-20260102-030405", (TRACE,), (), 0, 12.5, "stopped", COMMAND, (TRACE,))


class Crashed(LiteralRecording):
    output = LiteralRecording.output + b"Traceback (most recent call last):\r\nRuntimeError: CUDA out of memory\r\n"
    has_ended, phase_text, seconds = True, "done", 12.5
    ended = RunResult(f"{RUNS}/train-20260102-030405", (TRACE,), (), 1, 12.5, "RuntimeError", COMMAND, (TRACE,))


class Untraced(LiteralRecording):
    has_ended, phase_text, seconds = True, "done", 12.5
    last_log = "no step was recorded: the program ended in the warm-up"
    ended = RunResult(f"{RUNS}/train-20260102-030405", (), (), 0, 12.5, "finished", COMMAND)


STATES = {state.__name__.lower(): state for state in (LiteralRecording, Asking, Stopping, Finished, Crashed, Untraced)}


@cases_at_every_size("state", STATES)
async def test_recording(state: str, size: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recording_screen, "Recording", STATES[state])
    monkeypatch.setattr(RecordingScreen, "action_show_trace", lambda _: None)  # there is no trace to open
    app = TorchprofApp()
    async with app.run_test(size=size) as pilot:
        await app.push_screen(RecordingScreen(RecordingRequest(COMMAND), "/home/ada/training"))
        await settled(pilot)
        drawn = text_on_screen(app.screen)
    compare_golden(f"recording-{state.replace('literal', '')}".replace("-recording", "-live"), size, drawn)
