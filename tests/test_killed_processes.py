"""Test that the program survives the end of any process that it starts, and folders of the system that are missing.

Other processes: the decoders of parts (`tests/trace/decode/test_parallel.py`), the workers of ranks
(`tests/trace/loading/test_open_ranks.py`), ssh (`tests/trace/sources/test_ssh_connections.py`), recorded programs
(`tests/runs/test_recording_process.py`) and the program itself (`tests/ui/common/test_terminal_driver.py`).
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from tests.helpers.command_line import PROGRAM, run_program
from tests.helpers.explorer_app import until
from tests.helpers.terminal import Terminal
from torchprof_samples import find
from torchprof_tui.app import TorchprofApp
from torchprof_tui.trace.loading.opener import SingleTraceOpener
from torchprof_tui.trace.loading.progress import LoadError
from torchprof_tui.trace.loading.worker_process import Task, WorkerProcess
from torchprof_tui.ui.common.terminal_driver import KILLED_LINE

SAMPLE = find("train_gpt_stack_memory").path
RANKS = find("train_gpt_2ranks").path


@pytest.fixture(autouse=True)
def cache_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "cache"
    monkeypatch.setenv("TORCHPROF_TUI_CACHE", str(folder))
    return folder


def list_children(parent: int) -> list[int]:
    """List the running children of a process."""
    found = []
    for name in os.listdir("/proc"):
        with contextlib.suppress(OSError, ValueError):
            fields = Path(f"/proc/{int(name)}/stat").read_text().rpartition(")")[2].split()
            if int(fields[1]) == parent and fields[0] != "Z":
                found.append(int(name))
    return found


@pytest.mark.long
def test_every_child_of_an_open_trace_may_be_killed() -> None:
    """The shell that guards the terminal, and what still runs after the load."""
    with Terminal([*PROGRAM, str(SAMPLE)]) as terminal:
        terminal.wait_for("ProfilerStep#", "stream 7")
        killed = 0
        for _ in range(5):
            for child in list_children(terminal.pid):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(child, signal.SIGKILL)
                    killed += 1
            time.sleep(0.1)
        assert killed
        terminal.send("n")
        terminal.send("?")
        terminal.wait_for("zoom in at the cursor")
        terminal.send("\x1b")
        terminal.wait_for("zoom in at the cursor", gone=True)
        terminal.send("q")
        assert terminal.wait_for_end() == 0
        assert not terminal.is_raw()
        assert "was killed" not in terminal.text


@pytest.mark.long
async def test_a_killed_splitter_leaves_the_args_readable(monkeypatch: pytest.MonkeyPatch) -> None:
    """The process that writes the text blocks of a gzip file, while the trace is on screen."""
    started: list[WorkerProcess] = []
    start = WorkerProcess.start

    def start_and_kill(worker: WorkerProcess) -> None:
        start(worker)
        if worker._arguments[0] == Task.SPLIT.value:
            started.append(worker)
            assert worker._process is not None
            worker._process.kill()

    monkeypatch.setattr(WorkerProcess, "start", start_and_kill)
    opener = SingleTraceOpener(str(SAMPLE), defer_blocks=True)
    opener.start()
    app = TorchprofApp(opener)
    async with app.run_test(size=(160, 48)) as pilot:
        await app.lanes_ready.wait()
        await until(pilot, lambda: len(started) == 1)
        trace = app.screen.trace  # type: ignore[attr-defined]
        expected = SingleTraceOpener(str(SAMPLE), cache=False)
        expected.start()
        other = await expected.load_trace(lambda progress: None)
        for event in (0, len(trace) // 2, len(trace) - 1):
            assert trace.event(event).read_args() == other.event(event).read_args()
        expected.close()
    assert app.failure is None


async def test_a_killed_listing_worker_is_one_line() -> None:
    worker = WorkerProcess(Task.LIST, '["box:runs"]', stdin=subprocess.PIPE)
    worker.start()
    assert worker._process is not None
    worker._process.kill()
    with pytest.raises(LoadError, match="was killed"):
        await worker.read_result(lambda progress: None)
    worker.cancel()


def test_a_cached_column_that_is_cut_short_while_it_is_mapped(cache_home: Path) -> None:
    """No Python code can handle the SIGBUS of a read: the program ends, but with one line and a usable terminal."""
    assert run_program("info", str(SAMPLE)).returncode == 0
    (columns,) = cache_home.glob("*/columns")
    with Terminal([*PROGRAM, str(SAMPLE)]) as terminal:
        terminal.wait_for("ProfilerStep#", "stream 7")
        os.truncate(columns, 0)
        for key in "t", "n", "\x1b", "c":
            with contextlib.suppress(OSError):  # the program has ended
                terminal.send(key)
        assert terminal.wait_for_end() == -signal.SIGBUS
        terminal.wait_for(KILLED_LINE[:80])
        assert not terminal.is_raw()


# -- folders of the system -------------------------------------------------------------------------------------------

_READ_ONLY = "mount -t tmpfs -o ro tmpfs /dev/shm"

_MISSING = """
for name in null urandom random tty; do : > "$0/$name"; mount --bind "/dev/$name" "$0/$name" || exit 99; done
mount --bind "$0" /dev && test ! -e /dev/shm
"""

COMMANDS = (("check", str(SAMPLE), "--json"), ("table", str(RANKS), "--no-cache"))


def run_in_namespace(setup: str, folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run the program with mounts of its own. Skips where this is not allowed."""
    script = f'{setup}\n[ $? = 0 ] || exit 99\nexec "$@"'
    command = ["unshare", "--mount", "--propagation", "private", "sh", "-c", script, str(folder), *PROGRAM, *words]
    try:
        result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    except FileNotFoundError:
        pytest.skip("there is no unshare here")
    if result.returncode == 99 or "unshare:" in result.stderr:
        pytest.skip("mounting is not allowed here")
    return result


@pytest.mark.long
def test_without_shared_memory(tmp_path: Path) -> None:
    expected = [run_program(*words) for words in COMMANDS]
    for setup in (_READ_ONLY, _MISSING):
        folder = Path(tempfile.mkdtemp(dir=tmp_path))
        for number, (words, usual) in enumerate(zip(COMMANDS, expected, strict=True)):
            (folder / str(number)).mkdir()
            result = run_in_namespace(setup, folder / str(number), *words)
            assert (result.returncode, result.stdout, result.stderr) == (0, usual.stdout, usual.stderr)
    picture = tmp_path / "p.txt"
    (folder / "screen").mkdir()
    result = run_in_namespace(_MISSING, folder / "screen", "snapshot", str(SAMPLE), "-o", str(picture))
    assert (result.returncode, result.stderr) == (0, "")
    assert "ProfilerStep#" in picture.read_text()


@pytest.mark.long
def test_the_program_uses_no_shared_memory() -> None:
    """Semaphores and blocks of `multiprocessing` are files in /dev/shm."""
    code = (
        "import sys\nfrom torchprof_tui.cli import main\n"
        f"main(['check', {str(SAMPLE)!r}, '--json'])\n"
        "import torchprof_tui.app\n"
        "names = ('multiprocessing.synchronize', 'multiprocessing.shared_memory', '_multiprocessing', '_posixshmem')\n"
        "print([name for name in names if name in sys.modules], file=sys.stderr)"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)
    assert result.stderr.strip() == "[]"
