"""A run in its terminal: what is printed, every way to end it, and that nothing of it is left behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.helpers.paths import ROOT
from torchprof_tui.runs import recording_process, recording_request
from torchprof_tui.runs.history import read_request
from torchprof_tui.runs.recording_process import BUFFER_BYTES, Recording
from torchprof_tui.runs.recording_request import RecordingRequest

FAKE = ROOT / "tests/helpers/fake_harness.py"
CHILD = """
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
open(FOLDER + "/child", "w").write(str(child.pid))
print("ready", flush=True)
child.wait()
"""

Record = Callable[..., Recording]


@pytest.fixture
def record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Record]:
    """record(script): the script, started under the fake harness in a terminal of 80 × 24."""
    monkeypatch.setattr(recording_request, "HARNESS", FAKE)
    made: list[Recording] = []

    def record(script: str) -> Recording:
        (tmp_path / "script.py").write_text(script)
        made.append(Recording(RecordingRequest(("script.py",), (), sys.executable), str(tmp_path)))
        made[-1].start(80, 24)
        return made[-1]

    yield record
    for each in made:
        each.close()


def until(holds: Callable[[], object]) -> None:
    deadline = time.monotonic() + 300
    while not holds():
        assert time.monotonic() < deadline, "it never came"
        time.sleep(0.01)


def printed(run: Recording, word: bytes | None = None) -> bytes:
    """All that it prints, until `word` or its end."""
    found = b""

    def enough() -> bool:
        nonlocal found
        found += run.poll()[0]
        return run.has_ended or (word is not None and word in found)

    until(enough)
    return found + run.poll()[0]


def gone(pid: int) -> bool:
    """Whether the process is no more, or has only not been waited for."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        return False


def test_it_has_a_terminal_and_what_it_kept_is_known(record: Record, tmp_path: Path) -> None:
    run = record(
        "import os, sys\n"
        "print([os.isatty(each) for each in range(3)], *os.get_terminal_size(), os.environ['TERM'])\n"
        "print(repr(sys.stdin.read()), 'COLUMNS' in os.environ, open('/dev/tty').isatty())\n"
    )
    out = printed(run)
    assert out == b"[False, True, True] 80 24 xterm-256color\r\n'' False True\r\n"
    result = run.result()
    assert (result.exit_status, result.end_reason) == (0, "finished")
    (trace,) = result.traces
    assert read_request(trace) == (
        RecordingRequest(("script.py",), (), sys.executable, str(tmp_path / "torchprof_runs")),
        str(tmp_path),
    )
    assert run.phase is not None
    assert (run.phase.phase, run.last_log) == ("done", "ended: finished")


def test_the_first_ctrl_c_keeps_what_was_recorded(record: Record) -> None:
    run = record("import time\nprint('ready', flush=True)\ntime.sleep(600)\n")
    printed(run, b"ready")
    assert run.phase is not None
    assert run.phase.text in ("recording, step 2 of 3", "starting")
    run.stop()
    printed(run)
    result = run.result()
    assert (result.exit_status, result.end_reason, len(result.traces)) == (130, "interrupted", 1)


def test_what_does_not_stop_is_killed_with_its_children(record: Record, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recording_process, "KILL_DELAY_SECONDS", 0.2)
    ignoring = "import signal\nfor each in (signal.SIGINT, signal.SIGTERM): signal.signal(each, signal.SIG_IGN)\n"
    run = record(ignoring + CHILD)
    printed(run, b"ready")
    child = int(Path(run.folder or "", "child").read_text())
    run.stop()
    time.sleep(0.1)
    run.poll()
    assert not run.has_ended
    run.stop()
    printed(run)
    assert run.result().exit_status == 128 + signal.SIGKILL
    until(lambda: gone(child))


def test_a_program_that_catches_ctrl_c_and_goes_on_is_ended_by_the_second_and_saves(record: Record) -> None:
    script = """
import time
print("ready", flush=True)
while True:
    try: time.sleep(600)
    except KeyboardInterrupt: print("went on", flush=True)
"""
    run = record(script)
    printed(run, b"ready")
    run.stop()
    printed(run, b"went on")
    assert not run.has_ended
    run.stop()
    printed(run)
    result = run.result()
    assert (result.exit_status, result.end_reason, len(result.traces)) == (128 + signal.SIGTERM, "SIGTERM", 1)


def test_closing_ends_it_and_its_children_and_it_saves(record: Record) -> None:
    run = record(CHILD)
    printed(run, b"ready")
    folder = Path(run.folder or "")
    run.close()
    until(lambda: gone(int((folder / "child").read_text())))
    until(lambda: (folder / "manifest.json").exists())
    assert json.loads((folder / "manifest.json").read_text())["ended"] == "interrupted"
    assert (folder / "script.pt.trace.json.gz").exists()


def test_closing_does_not_wait_for_one_that_will_not_end(record: Record, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recording_process, "CLOSE_TIMEOUT_SECONDS", 0.1)
    run = record(
        "import time\nprint('ready', flush=True)\nwhile True:\n"
        "    try:\n        time.sleep(600)\n    except KeyboardInterrupt:\n        pass\n"
    )
    printed(run, b"ready")
    folder = Path(run.folder or "")
    run.close()
    until(lambda: (folder / "manifest.json").exists())
    assert json.loads((folder / "manifest.json").read_text())["ended"] in ("SIGTERM", "SIGHUP")


def test_killing_this_program_ends_it_and_its_children_and_it_saves(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(CHILD)
    code = (
        "import sys, time\nfrom pathlib import Path\nfrom torchprof_tui.runs import recording_request\n"
        "from torchprof_tui.runs.recording_process import Recording\n"
        f"recording_request.HARNESS = Path({str(FAKE)!r})\n"
        "run = Recording(recording_request.Request(('script.py',), (), sys.executable))\nrun.start(80, 24)\n"
        "while b'ready' not in run.look()[0]:\n    time.sleep(0.01)\n"
        "print(run.folder, flush=True)\ntime.sleep(600)\n"
    )
    viewer = subprocess.Popen(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert viewer.stdout is not None
    folder = Path(viewer.stdout.readline().strip())
    viewer.kill()
    viewer.wait()
    viewer.stdout.close()
    until(lambda: (folder / "manifest.json").exists())
    until(lambda: gone(int((folder / "child").read_text())))
    assert (folder / "script.pt.trace.json.gz").exists()


def test_a_flood_is_counted_and_only_its_end_kept(record: Record) -> None:
    run = record("for number in range(100_000):\n    print('line', number)\n")
    until(lambda: run._process is not None and run._process.poll() is not None)  # it waits for nobody
    seen = dropped = 0
    last = b""
    while not run.has_ended or last:
        last, skipped = run.poll()
        assert len(last) <= 2 * BUFFER_BYTES
        seen, dropped = seen + last.count(b"\n"), dropped + skipped
        time.sleep(0.01)
    assert seen + dropped == 100_000
    assert dropped > 90_000


def test_a_command_that_cannot_be_run_says_so(tmp_path: Path) -> None:
    gone = Recording(RecordingRequest(("script.py",), (), sys.executable), str(tmp_path / "gone"))
    with pytest.raises(FileNotFoundError):
        gone.start(80, 24)
    gone.close()
