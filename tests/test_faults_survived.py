"""Test that the program survives its surroundings: killed workers, scarce resources, full disks, changed files."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import weakref
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from tests.helpers.command_line import PROGRAM, run_program
from tests.helpers.explorer_app import until
from tests.helpers.long_run import keep_some
from tests.helpers.paths import list_cache
from tests.helpers.trace_builder import cpu
from torchprof_samples import find
from torchprof_tui.app import TorchprofApp
from torchprof_tui.trace.core.errors import DAMAGED_CACHE_MESSAGE
from torchprof_tui.trace.loading.load_in_process import load_opened_trace, load_trace
from torchprof_tui.trace.loading.opener import SingleTraceOpener
from torchprof_tui.trace.model.trace import Trace
from torchprof_tui.ui.explorer.explorer_screen import ExplorerScreen
from torchprof_tui.ui.start.loading_screen import LoadingScreen

SAMPLE = find("attention_naive").path
LARGER_SAMPLE = find("train_gpt_stack_memory").path
RANKS = find("train_gpt_2ranks").path


@pytest.fixture(autouse=True)
def cache_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "cache"
    monkeypatch.setenv("TORCHPROF_TUI_CACHE", str(folder))
    return folder


def expect_one_line(result: subprocess.CompletedProcess[str], *words: str) -> None:
    """The command failed with one line on stderr that has one of the words."""
    assert result.returncode == 2, result.stderr
    assert result.stdout == ""
    lines = result.stderr.strip().splitlines()
    assert len(lines) == 1, result.stderr
    assert any(word in lines[0] for word in words), lines[0]


def limiting(what: int, limit: int) -> Callable[[], None]:
    """Return what a process of its own is to call before it starts the program."""
    return partial(resource.setrlimit, what, (limit, limit))


# -- resources -------------------------------------------------------------------------------------------------------


@pytest.mark.long
def test_no_home_folder(tmp_path: Path) -> None:
    kept = {key: value for key, value in os.environ.items() if key not in ("HOME", "TORCHPROF_TUI_CACHE")}
    expected = run_program("table", SAMPLE, "--no-cache").stdout
    for home in ({}, {"HOME": "/nonexistent/home"}, {"HOME": ""}):
        environment = {**kept, **home, "XDG_CACHE_HOME": str(tmp_path / "xdg")}
        result = run_program("table", SAMPLE, env=environment)
        assert (result.returncode, result.stdout, result.stderr) == (0, expected, "")


@pytest.mark.long
def test_64_file_descriptors() -> None:
    few = limiting(resource.RLIMIT_NOFILE, 64)
    for spec in (LARGER_SAMPLE, RANKS):
        result = run_program("check", spec, "--json", preexec_fn=few)
        assert result.returncode == 0, result.stderr
        assert result.stdout == run_program("check", spec, "--json").stdout


@pytest.mark.long
@pytest.mark.parametrize("megabytes", keep_some([300, 1000], 1))
def test_little_address_space(megabytes: int) -> None:
    little = limiting(resource.RLIMIT_AS, megabytes << 20)
    result = run_program("check", LARGER_SAMPLE, "--json", "--no-cache", preexec_fn=little)
    if result.returncode == 0:
        assert json.loads(result.stdout)
    else:
        assert megabytes < 1000, result.stderr
        expect_one_line(result, "not enough memory")


@pytest.mark.long
def test_no_address_space_for_threads() -> None:
    code = (
        "import threading, sys\n"
        'def fail(self): raise RuntimeError("can\'t start new thread")\n'
        "threading.Thread.start = fail\n"
        "from torchprof_tui.cli import main; sys.exit(main(sys.argv[1:]))"
    )
    command = [sys.executable, "-c", code, "info", str(LARGER_SAMPLE), "--no-cache"]
    expect_one_line(subprocess.run(command, capture_output=True, text=True, check=False), "not enough memory")


@pytest.mark.parametrize("kilobytes", keep_some([4, 0, 64, 200], 1))
def test_a_file_cannot_grow(kilobytes: int, cache_home: Path, tmp_path: Path) -> None:
    """Each write is the one that fails, for some limit: a limit on file sizes is a full disk without a disk."""
    small = limiting(resource.RLIMIT_FSIZE, kilobytes << 10)
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    environment = {**os.environ, "TMPDIR": str(temporary)}
    result = run_program("table", LARGER_SAMPLE, preexec_fn=small, env=environment)
    expect_one_line(result, "TORCHPROF_TUI_CACHE", "File too large", "No usable temporary directory")
    assert list_cache(cache_home) == os.listdir(temporary) == []


@pytest.mark.long
@pytest.mark.skipif(os.geteuid() != 0, reason="mounts a file system")
def test_a_full_cache_folder_is_left_for_the_temporary_one(cache_home: Path) -> None:
    cache_home.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", cache_home], capture_output=True)
    if mounted.returncode:
        pytest.skip("mounting is not allowed here")
    try:
        expected = run_program("table", LARGER_SAMPLE, "--no-cache").stdout
        for _ in range(2):
            result = run_program("table", LARGER_SAMPLE)
            assert (result.returncode, result.stdout, result.stderr) == (0, expected, "")
        assert list_cache(cache_home) == []
        opener = SingleTraceOpener(str(LARGER_SAMPLE))
        opener.start()
        assert len(asyncio.run(opener.load_trace(lambda progress: None)))
        opener.close()
    finally:
        subprocess.run(["umount", cache_home], check=True)


@pytest.mark.parametrize("words", keep_some(["table", "info", "check --json", "chain --kernel ."], 2))
def test_a_reader_that_closes_the_pipe_ends_the_program_quietly(words: str) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    name, *options = words.split()
    result = run_program(name, SAMPLE, *options, stdout=writer, stderr=subprocess.PIPE)
    os.close(writer)
    assert result.stderr == "" or name == "chain"
    assert result.returncode == 0 or name == "chain"
    assert "Traceback" not in result.stderr


def test_a_clock_that_was_set_back(cache_home: Path) -> None:
    loaded = load_opened_trace(str(SAMPLE))
    assert loaded.cache_entry is not None
    tomorrow = loaded.cache_entry.folder.stat().st_mtime + 86_400
    for path in (loaded.cache_entry.folder / "lock", loaded.cache_entry.folder):
        os.utime(path, (tomorrow, tomorrow))
    loaded.cache_entry.close()
    result = run_program("table", SAMPLE)
    assert (result.returncode, result.stderr) == (0, "")
    assert load_opened_trace(str(SAMPLE)).cached


@pytest.mark.long
@pytest.mark.parametrize("state", keep_some(["read-only", "a file", "missing", "removed"], 1))
def test_the_cache_folder_is_no_help(state: str, cache_home: Path) -> None:
    expected = run_program("table", SAMPLE, "--no-cache").stdout
    if state == "a file":
        cache_home.write_text("")
    elif state == "read-only":
        cache_home.mkdir(mode=0o500)
    loaded = load_opened_trace(str(SAMPLE))
    if state == "removed":
        shutil.rmtree(cache_home)
        with pytest.raises(OSError, match="No such file"):  # the columns are mapped, the text is gone
            loaded.trace.event(0).read_args()
    result = run_program("table", SAMPLE)
    assert (result.returncode, result.stdout, result.stderr) == (0, expected, "")


# -- other processes -------------------------------------------------------------------------------------------------


@pytest.mark.long
def test_two_programs_open_a_trace_at_once(cache_home: Path) -> None:
    command = [*PROGRAM, "check", str(LARGER_SAMPLE), "--json"]
    programs = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) for _ in range(2)]
    answers = [program.communicate(timeout=120) for program in programs]
    expected = run_program("check", LARGER_SAMPLE, "--json", "--no-cache").stdout.encode()
    assert answers == [(expected, b"")] * 2
    assert len(list_cache(cache_home)) == 1
    assert load_opened_trace(str(LARGER_SAMPLE)).cached


def child_processes() -> list[int]:
    """List the running children of this process."""
    found = []
    for name in os.listdir("/proc"):
        with contextlib.suppress(OSError, ValueError):
            fields = Path(f"/proc/{int(name)}/stat").read_text().rpartition(")")[2].split()
            if int(fields[1]) == os.getpid() and fields[0] != "Z":
                found.append(int(name))
    return found


async def test_a_killed_worker_is_one_line_and_r_tries_again(tmp_path: Path) -> None:
    pipe = tmp_path / "trace.json.gz"
    os.mkfifo(pipe)
    writer = os.open(pipe, os.O_RDWR)  # a worker waits for bytes that never come
    opener = SingleTraceOpener(str(pipe))
    before = set(child_processes())
    opener.start()
    app = TorchprofApp(opener)
    async with app.run_test() as pilot:
        (worker,) = set(child_processes()) - before
        os.kill(worker, signal.SIGKILL)
        await until(pilot, lambda: app.failure is not None)
        assert app.failure is not None
        assert "the loading process was killed" in app.failure
        assert "\n" not in app.failure
        assert "r try again" in str(app.screen.query_one("#loading-keys").content)  # type: ignore[attr-defined]
        pipe.unlink()
        shutil.copy(SAMPLE, pipe)
        await pilot.press("r")
        await until(pilot, lambda: isinstance(app.screen, ExplorerScreen))
        assert app.failure is None
        assert not any(isinstance(screen, LoadingScreen) for screen in app.screen_stack)
    os.close(writer)


def test_the_workers_of_a_command_are_killed() -> None:
    code = (
        "import sys; from torchprof_tui.trace.loading import worker_process as worker\n"
        "worker._START_CODE = 'import os, signal; os.kill(os.getpid(), signal.SIGKILL)'\n"
        "from torchprof_tui.cli import main; sys.exit(main(sys.argv[1:]))"
    )
    command = [sys.executable, "-c", code, "info", str(RANKS), "--no-cache"]
    result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    expect_one_line(result, "the loading process was killed")


# -- files -----------------------------------------------------------------------------------------------------------


def write_plain(path: Path, name: str) -> Path:
    path.write_text(json.dumps({"traceEvents": [cpu(name, 0, 10, size=1), cpu(name, 20, 10, size=2)]}))
    return path


def truncate(path: Path) -> None:
    os.truncate(path, 40)


def replace_file(path: Path) -> None:
    write_plain(path.with_name("other"), "two").replace(path)


def overwrite(path: Path) -> None:
    path.write_bytes(path.read_bytes().replace(b'"size": 1', b'"size": 7'))


@pytest.mark.parametrize("change", [truncate, replace_file, overwrite, Path.unlink])
def test_a_trace_that_changes_while_it_is_open(change: Callable[[Path], None], tmp_path: Path) -> None:
    path = write_plain(tmp_path / "trace.json", "one")
    trace = load_trace(str(path))
    assert trace.event(0).read_args() == {"size": 1}
    change(path)
    with pytest.raises((LookupError, OSError), match=r"has changed|No such file"):
        trace.event(0).read_args()


@pytest.mark.long
async def test_the_app_goes_on_when_its_trace_changes(tmp_path: Path) -> None:
    path = write_plain(tmp_path / "trace.json", "one")
    opener = SingleTraceOpener(str(path))
    opener.start()
    app = TorchprofApp(opener)
    async with app.run_test(size=(160, 48)) as pilot:
        await app.lanes_ready.wait()
        replace_file(path)
        await pilot.press("right")
        await until(pilot, lambda: "has changed" in screen_text(app))
        assert "size" not in screen_text(app)
        await pilot.press("w", "w", "0", "q")
    assert app.return_code == 0


def screen_text(app: TorchprofApp) -> str:
    return "\n".join(strip.text for strip in app.screen._compositor.render_strips())


# -- the app and its cache -------------------------------------------------------------------------------------------


@pytest.mark.long
async def test_the_app_says_that_a_damaged_entry_was_read_again() -> None:
    loaded = load_opened_trace(str(SAMPLE))
    assert loaded.cache_entry is not None
    columns = loaded.cache_entry.folder / "columns"
    loaded.cache_entry.close()
    content = bytearray(columns.read_bytes())
    content[0] ^= 1
    columns.write_bytes(content)
    opener = SingleTraceOpener(str(SAMPLE))
    opener.start()
    app = TorchprofApp(opener)
    async with app.run_test(notifications=True) as pilot:
        await app.lanes_ready.wait()
        await until(pilot, lambda: [notice.message for notice in app._notifications] == [DAMAGED_CACHE_MESSAGE])
    assert load_opened_trace(str(SAMPLE)).cached


@pytest.mark.long
async def test_a_trace_that_is_replaced_is_released(tmp_path: Path) -> None:
    """The theme's signal kept every screen that had subscribed to it, and so every trace of a session."""
    traces: list[weakref.ref[Trace]] = []
    opener = SingleTraceOpener(str(SAMPLE))
    opener.start()
    app = TorchprofApp(opener)
    async with app.run_test() as pilot:
        for number in range(4):
            await app.lanes_ready.wait()
            assert isinstance(app.screen, ExplorerScreen)
            traces.append(weakref.ref(app.screen.trace))
            app.lanes_ready.clear()
            app._open(str(write_plain(tmp_path / f"{number}.json", "op")))
        await app.lanes_ready.wait()
        await pilot.pause(0.5)
        gc.unfreeze()
        gc.collect()
        assert sum(trace() is not None for trace in traces) <= 1
