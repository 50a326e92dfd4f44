"""Test the commands where Python lacks what only Linux has, and where it lacks what Linux and macOS have."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers.command_line import PROGRAM
from tests.helpers.paths import ROOT

LINUX_ONLY = (
    *("memfd_create", "posix_fallocate", "posix_fadvise", "sched_getaffinity", "sched_setaffinity", "pipe2", "fork"),
    *("copy_file_range", "splice", "eventfd", "pidfd_open", "getrandom", "preadv"),
)
"""Functions of `os` that macOS lacks, or that are not used there."""

WITHOUT_LINUX = f"""
import os
for name in {LINUX_ONLY!r}:
    if hasattr(os, name):
        delattr(os, name)
"""
WITHOUT_POSIX = """
import os, signal, sys
for name in ("fcntl", "termios", "resource", "pwd", "grp", "tty", "pty"):
    sys.modules[name] = None
del signal.SIGHUP, os.memfd_create, os.fork
"""


def make_environment(folder: Path, code: str) -> dict[str, str]:
    """Return an environment in which each Python process starts with this code."""
    (folder / "sitecustomize.py").write_text(code)
    return {**os.environ, "PYTHONPATH": os.pathsep.join((str(folder), str(ROOT / "tui")))}


@pytest.mark.long
def test_commands_answer_without_what_only_linux_has(tmp_path: Path) -> None:
    words = [sys.executable, str(ROOT / "tools" / "try_commands.py"), "--", *PROGRAM]
    environment = make_environment(tmp_path, WITHOUT_LINUX)
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("words", [["info", "sample:linear_eager"], ["sample:linear_eager"], ["cache"]], ids=" ".join)
def test_commands_refuse_in_one_line_without_posix(tmp_path: Path, words: list[str]) -> None:
    environment = make_environment(tmp_path, WITHOUT_POSIX)
    done = subprocess.run([*PROGRAM, *words], env=environment, capture_output=True, text=True, check=False)
    line = "torchprof-tui: needs Linux or macOS (no fcntl here); on Windows run it inside WSL\n"
    assert (done.returncode, done.stdout, done.stderr) == (2, "", line)


def test_the_api_refuses_with_its_error(tmp_path: Path) -> None:
    code = (
        "import torchprof_tui as tt\ntry: tt.open('sample:linear_eager')\nexcept tt.TraceError as error: print(error)"
    )
    environment = make_environment(tmp_path, WITHOUT_POSIX)
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == (
        "torchprof-tui needs Linux or macOS (no fcntl here); on Windows run it inside WSL\n",
        "",
    )
