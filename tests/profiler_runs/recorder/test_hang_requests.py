"""Ask programs what they wait for: over their pipe, while the main thread is in native code."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.paths import ROOT
from tests.profiler_runs.recorder.test_hang_watch import wait_for
from torchprof_runs.recorder.hang_requests import listen
from torchprof_runs.recorder.hang_watch import HangWatch

PROGRAM = """
import signal, sys, threading, types
sys.path.insert(0, sys.argv[1])
hooks = []
for name in ("torch", "torch.optim", "torch.optim.optimizer"):
    sys.modules[name] = types.ModuleType(name)
sys.modules["torch.optim.optimizer"].register_optimizer_step_post_hook = hooks.append
import torchprof_runs
assert torchprof_runs.install()
for hook in hooks + hooks:
    hook(None, (), {})
from torchprof_runs.recorder import attached
import ctypes
print(attached._name_file("pipe"), flush=True)
ctypes.CDLL(None).pause()  # as a collective that hangs: native code without the GIL
"""


def ask(pipe: str, folder: Path, **request: Any) -> None:
    descriptor = os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)
    os.write(descriptor, json.dumps({"folder": str(folder), **request}).encode() + b"\n")
    os.close(descriptor)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "answers"
    path.mkdir(0o700)
    return path


def test_a_program_answers_while_its_main_thread_is_in_native_code(folder: Path) -> None:
    environment = {**os.environ, "RANK": "1", "WORLD_SIZE": "2"}
    command = [sys.executable, "-c", PROGRAM, str(ROOT / "profiler_runs")]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    assert process.stdout is not None
    with process.stdout:
        pipe = process.stdout.readline().strip()
        assert stat.S_IMODE(os.stat(pipe).st_mode) == 0o600
        try:
            (shared := folder.parent / "shared").mkdir()
            shared.chmod(0o755)
            ask(pipe, shared)
            ask(pipe, folder / "none")
            last, line = len(PROGRAM.splitlines()), 0
            while line != last:  # until it is there
                ask(pipe, folder)
                wait_for(folder / "stacks_rank_1.json")
                document = json.loads((folder / "stacks_rank_1.json").read_text())
                (folder / "stacks_rank_1.json").unlink()
                line = next(each["frames"] for each in document["threads"] if each["is_main"])[0]["line"]
            assert (document["steps"], document["world_size"], document["reason"]) == (2, 2, "asked by attach")
            assert not list(shared.iterdir())
            assert process.poll() is None
        finally:
            process.kill()
            process.wait()
            os.unlink(pipe)


def test_one_thread_answers_and_a_pipe_that_nobody_reads_is_replaced(tmp_path: Path, folder: Path) -> None:
    watch = HangWatch("", 0, 1, 0.0, print)
    watch.note_step()  # dumps nothing, and leaves faulthandler alone
    pipe = str(tmp_path / "pipe")
    os.mkfifo(pipe)
    assert listen(pipe, watch)
    assert not listen(pipe, watch)
    ask(pipe, folder, recorder=True)
    wait_for(folder / "stacks_rank_0.json")
    assert json.loads((folder / "stacks_rank_0.json").read_text())["steps"] == 1
