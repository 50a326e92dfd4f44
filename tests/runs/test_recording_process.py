"""A run in its terminal: its output, every way to end it, and that no process is left behind."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
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
    """record(script): start the script under the fake harness in a terminal of 80 × 24."""
    monkeypatch.setattr(recording_request, "HARNESS", FAKE)
    recordings: list[Recording] = []

    def record(script: str) -> Recording:
        (tmp_path / "script.py").write_text(script)
        recordings.append(Recording(RecordingRequest(("script.py",), (), sys.executable), str(tmp_path)))
        recordings[-1].start(80, 24)
        return recordings[-1]

    yield record
    for recording in recordings:
        recording.close()


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 300
    while not condition():
        assert time.monotonic() < deadline, "the condition was not met in time"
        time.sleep(0.01)


def read_output(run: Recording, word: bytes | None = None) -> bytes:
    """Read the output of a run until `word` or its end."""
    output = b""

    def is_complete() -> bool:
        nonlocal output
        output += run.poll()[0]
        return run.has_ended or (word is not None and word in output)

    until(is_complete)
    return output + run.poll()[0]


def has_ended(pid: int) -> bool:
    """Return whether the process has ended; it may still be a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        return False


def test_a_run_has_a_terminal_and_a_result(record: Record, tmp_path: Path) -> None:
    run = record(
        "import os, sys\n"
        "print([os.isatty(descriptor) for descriptor in range(3)], *os.get_terminal_size(), os.environ['TERM'])\n"
        "print(repr(sys.stdin.read()), 'COLUMNS' in os.environ, open('/dev/tty').isatty())\n"
    )
    output = read_output(run)
    assert output == b"[False, True, True] 80 24 xterm-256color\r\n'' False True\r\n"
    result = run.result()
    assert (result.exit_status, result.end_reason) == (0, "finished")
    (trace,) = result.traces
    stored = read_request(trace)
    assert stored is not None
    assert (stored.request, stored.cwd, stored.is_own) == (
        RecordingRequest(("script.py",), (), sys.executable, str(tmp_path / "torchprof_runs")),
        str(tmp_path),
        True,
    )
    assert run.phase is not None
    assert (run.phase.phase, run.last_log) == ("done", "ended: finished")


def test_the_first_ctrl_c_saves_the_recording(record: Record) -> None:
    run = record("import time\nprint('ready', flush=True)\ntime.sleep(600)\n")
    read_output(run, b"ready")
    assert run.phase is not None
    assert run.phase.text in ("recording, step 2 of 3", "starting")
    run.stop()
    read_output(run)
    result = run.result()
    assert (result.exit_status, result.end_reason, len(result.traces)) == (130, "interrupted", 1)


def test_a_program_that_does_not_stop_is_killed_with_its_children(
    record: Record, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recording_process, "KILL_DELAY_SECONDS", 0.2)
    ignore = "import signal\nfor signum in (signal.SIGINT, signal.SIGTERM): signal.signal(signum, signal.SIG_IGN)\n"
    run = record(ignore + CHILD)
    read_output(run, b"ready")
    child = int(Path(run.folder or "", "child").read_text())
    run.stop()
    time.sleep(0.1)
    run.poll()
    assert not run.has_ended
    run.stop()
    read_output(run)
    assert run.result().exit_status == 128 + signal.SIGKILL
    until(lambda: has_ended(child))


def test_a_program_that_catches_ctrl_c_and_goes_on_is_ended_by_the_second_and_saves(record: Record) -> None:
    script = """
import time
while True:
    try:
        print("ready", flush=True)  # ctrl+c may come at once
        time.sleep(600)
    except KeyboardInterrupt: print("went on", flush=True)
"""
    run = record(script)
    read_output(run, b"ready")
    run.stop()
    read_output(run, b"went on")
    assert not run.has_ended
    run.stop()
    read_output(run)
    result = run.result()
    assert (result.exit_status, result.end_reason, len(result.traces)) == (128 + signal.SIGTERM, "SIGTERM", 1)


def test_closing_ends_it_and_its_children_and_it_saves(record: Record) -> None:
    run = record(CHILD)
    read_output(run, b"ready")
    folder = Path(run.folder or "")
    run.close()
    until(lambda: has_ended(int((folder / "child").read_text())))
    until(lambda: (folder / "manifest.json").exists())
    assert json.loads((folder / "manifest.json").read_text())["ended"] == "interrupted"
    assert (folder / "script.pt.trace.json.gz").exists()


def test_closing_does_not_wait_for_a_program_that_does_not_end(record: Record, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recording_process, "CLOSE_TIMEOUT_SECONDS", 0.1)
    run = record(
        "import time\nwhile True:\n    try:\n        print('ready', flush=True)\n        time.sleep(600)\n"
        "    except KeyboardInterrupt:\n        pass\n"
    )
    read_output(run, b"ready")
    folder = Path(run.folder or "")
    run.close()
    run.close()  # the program may still run: nothing is read that is closed
    until(lambda: (folder / "manifest.json").exists())
    assert json.loads((folder / "manifest.json").read_text())["ended"] in ("SIGTERM", "SIGHUP", "interrupted")


def test_killing_the_viewer_ends_the_run_and_its_children_and_it_saves(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(CHILD)
    code = (
        "import sys, time\nfrom pathlib import Path\nfrom torchprof_tui.runs import recording_request\n"
        "from torchprof_tui.runs.recording_process import Recording\n"
        f"recording_request.HARNESS = Path({str(FAKE)!r})\n"
        "run = Recording(recording_request.RecordingRequest(('script.py',), (), sys.executable))\nrun.start(80, 24)\n"
        "while b'ready' not in run.poll()[0]:\n    time.sleep(0.01)\n"
        "print(run.folder, flush=True)\ntime.sleep(600)\n"
    )
    viewer = subprocess.Popen(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT / "tui")},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert viewer.stdout is not None
    folder = Path(viewer.stdout.readline().strip())
    viewer.kill()
    viewer.wait()
    viewer.stdout.close()
    until(lambda: (folder / "manifest.json").exists())
    until(lambda: has_ended(int((folder / "child").read_text())))
    assert (folder / "script.pt.trace.json.gz").exists()


def test_a_large_output_is_counted_and_only_its_end_is_kept(record: Record) -> None:
    run = record("for number in range(10_000):\n    print('line', number, '.' * 100)\n")
    until(lambda: run._process is not None and run._process.poll() is not None)  # it ends without being polled
    read_lines = dropped_lines = 0
    output = b""
    while not run.has_ended or output:
        output, dropped = run.poll()
        assert len(output) <= 2 * BUFFER_BYTES
        read_lines, dropped_lines = read_lines + output.count(b"\n"), dropped_lines + dropped
        time.sleep(0.01)
    assert read_lines + dropped_lines == 10_000
    assert dropped_lines > 8_500


def test_a_command_that_cannot_be_run_says_so(tmp_path: Path) -> None:
    run = Recording(RecordingRequest(("script.py",), (), sys.executable), str(tmp_path / "missing"))
    with pytest.raises(FileNotFoundError):
        run.start(80, 24)
    run.close()


def test_a_full_temporary_folder_is_an_os_error_at_the_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not one in the constructor, where no screen could show it."""

    def fail(**_: object) -> str:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(tempfile, "mkdtemp", fail)
    run = Recording(RecordingRequest(("script.py",), (), sys.executable), str(tmp_path))
    with pytest.raises(OSError, match="No space left"):
        run.start(80, 24)
    assert (run.poll(), run.folder) == ((b"", 0), None)
    run.close()


def test_a_terminal_larger_than_the_kernel_counts(record: Record) -> None:
    run = record("import time\nprint('ready', flush=True)\ntime.sleep(600)\n")
    read_output(run, b"ready")
    run.resize(10**6, 10**6)  # struct.pack would raise
    assert os.get_terminal_size(run._master) == (65_535, 65_535)


def test_ctrl_c_while_torch_makes_its_table_does_not_count_as_a_stop(record: Record) -> None:
    script = """
import json, os, time
def say(phase):
    line = json.dumps({"time": time.time(), "pid": os.getpid(), "rank": 0, "phase": phase})
    channel = os.open(os.environ["TORCHPROF_STATUS"], os.O_WRONLY)
    os.write(channel, line.encode() + b"\\n")
try:
    say("tabulating")
    time.sleep(600)
except KeyboardInterrupt:
    print("skipped", flush=True)
"""
    run = record(script)
    until(lambda: (run.poll(), run.phase is not None and run.phase.phase == "tabulating")[1])
    run.stop()
    assert run.table_skipped
    assert b"skipped" in read_output(run)
    assert (run.interrupts, run.result().exit_status) == (0, 0)


def test_output_is_read_by_a_process_with_many_open_files(record: Record) -> None:
    """`select.select` refuses descriptors from 1,024 on: the output was empty, and the run seemed to have ended."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if limit != resource.RLIM_INFINITY and limit < 1_200:
        pytest.skip(f"only {limit} files may be open")
    opened = [os.open(os.devnull, os.O_RDONLY) for _ in range(1_100)]
    try:
        run = record("print('ready', flush=True)")
        read_output(run, b"ready")
    finally:
        for file in opened:
            os.close(file)
