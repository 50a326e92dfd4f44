"""Build a session's surroundings in one folder, and watch what the session does outside of the places it may write to.

Writes inside the folder are found by comparing listings, writes elsewhere by Python's audit events: of this process,
not of the worker processes that decode.
"""

from __future__ import annotations

import errno
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from unittest.mock import patch

from tests.helpers.paths import ROOT
from tests.hostile.cases import FOLDER, TRACE, Inputs
from tests.hostile.oracle import FindingError
from torchprof_tui.runs import recording_request

HARNESS = ROOT / "tests/hostile/hostile_harness.py"

OWN_PLACES = ("cache", "state", "tmp", "out", "home/.cache", "home/.local", "nonexistent")
"""Where a session may write: cache, state, temporary files, and where the user says (`-o`)."""

SSH_CLIENT = """#!/bin/sh
case "$*" in
  *"-G "*) echo controlpath /socket; echo controlmaster auto; exit ;;
  *"-O "*) exit ;;
esac
exec cat {root}/answer
"""
"""A client for which every host is connected already, and gives the session's answer to every command."""

_WRITE_FLAGS = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_WRITE_EVENTS = ("os.mkdir", "os.remove", "os.rmdir", "os.truncate", "os.chmod")
_PAIR_EVENTS = ("os.rename", "os.link", "os.symlink")
_DEVICES = ("/dev/", "/proc/self/")

_watching: World | None = None
_has_hook = False


@dataclass
class World:
    """The folder of one session, and what was seen of it."""

    root: Path
    outside: list[str] = field(default_factory=list)  # writes outside of `root`
    recordings: int = 0  # processes of recorded programs that were started

    @property
    def work(self) -> Path:
        return self.root / "work"

    @property
    def output(self) -> Path:
        return self.root / "out"

    def expand(self, text: str) -> str:
        return text.replace("{root}", str(self.root)).replace("{file}", str(self.root / "file"))

    def list_files(self) -> dict[str, tuple[int, bytes]]:
        """List what lies outside of the session's own places: path → (kind and mode, content)."""
        found = {}
        for path in sorted(self.root.rglob("*")):
            name = path.relative_to(self.root).as_posix()
            if any(name == place or name.startswith(f"{place}/") for place in OWN_PLACES):
                continue
            is_file = path.is_file() and not path.is_symlink()
            found[name] = (path.lstat().st_mode, path.read_bytes() if is_file else b"")
        return found


@contextmanager
def build_world(inputs: Inputs, named_outputs: bool = False) -> Iterator[World]:
    """Build a session's folder, make it the current one, and raise FindingError for what was written elsewhere.

    `named_outputs`: the user may have named new files in the current folder and started recordings, so only changed
    and removed files are findings there.
    """
    with tempfile.TemporaryDirectory(prefix="hostile-", ignore_cleanup_errors=True) as name:
        world = World(Path(name).resolve())
        _write_inputs(world, inputs)
        before = world.list_files()
        with _surroundings(world, inputs), _watch(world):
            yield world
        _compare(before, world.list_files(), named_outputs)
        if world.outside:
            raise FindingError(f"written outside: {world.outside[:3]}")
        if world.recordings and not named_outputs:
            raise FindingError("a program was started without being asked for")


def _write_inputs(world: World, inputs: Inputs) -> None:
    for name in ("home", "work", "state/torchprof-tui", "cache", "tmp", "out", "bin", f"work/{FOLDER}"):
        (world.root / name).mkdir(parents=True, exist_ok=True)
    (world.root / "file").write_bytes(b"")
    (world.work / TRACE).write_bytes(inputs.trace)
    for name, data in inputs.run_files:
        (world.work / FOLDER / name).write_bytes(data)
    if inputs.recent is not None:
        (world.root / "state/torchprof-tui/recent.json").write_bytes(inputs.recent)
    for name, data in (("answer", inputs.answer), ("status", inputs.status_lines), ("console", inputs.console)):
        (world.root / name).write_bytes(data)
    client = world.root / "bin" / "ssh"
    client.write_text(SSH_CLIENT.format(root=world.root))
    client.chmod(0o755)


@contextmanager
def _surroundings(world: World, inputs: Inputs) -> Iterator[None]:
    """Change to the session's folder and environment; nobody has a home folder but by HOME."""
    root = str(world.root)
    environment: dict[str, str | None] = {
        "HOME": f"{root}/home",
        "XDG_STATE_HOME": f"{root}/state",
        "XDG_CACHE_HOME": None,
        "TORCHPROF_TUI_CACHE": f"{root}/cache",
        "TMPDIR": f"{root}/tmp",
        "PATH": f"{root}/bin:{os.environ.get('PATH', os.defpath)}",
        "HOSTILE_ROOT": root,
        "HOSTILE_HARNESS": str(HARNESS),
        **dict(inputs.environment),
    }
    before, folder = dict(os.environ), os.getcwd()
    try:
        os.chdir(world.work)
        for name, value in environment.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = world.expand(value)
        tempfile.tempdir = None
        time.tzset()
        with (
            patch("pwd.getpwuid", side_effect=KeyError("nobody")),
            patch.object(recording_request, "HARNESS", HARNESS),
            patch.object(sys, "dont_write_bytecode", True),
        ):
            yield
    finally:
        os.environ.clear()
        os.environ.update(before)
        tempfile.tempdir = None
        time.tzset()
        os.chdir(folder)


def _compare(before: dict[str, tuple[int, bytes]], after: dict[str, tuple[int, bytes]], named_outputs: bool) -> None:
    changed = [name for name in before if after.get(name) != before[name]]
    added = [name for name in after if name not in before]
    if named_outputs:
        added = [name for name in added if not name.startswith("work/")]
    if changed or added:
        raise FindingError(f"changed: {changed[:3]}, added: {added[:3]}")


@contextmanager
def _watch(world: World) -> Iterator[None]:
    global _watching, _has_hook
    if not _has_hook:
        sys.addaudithook(_audit)  # cannot be removed
        _has_hook = True
    _watching = world
    try:
        yield
    finally:
        _watching = None


def _audit(event: str, arguments: tuple[object, ...]) -> None:
    world = _watching
    if world is None:
        return
    paths: tuple[object, ...] = ()
    if event == "open":
        _, mode, flags = arguments[:3]
        if (isinstance(flags, int) and flags & _WRITE_FLAGS) or (isinstance(mode, str) and set(mode) & set("wax+")):
            paths = arguments[:1]
    elif event in _WRITE_EVENTS:
        paths = arguments[:1] if arguments[-1] in (-1, None) else ()  # else relative to a folder that was opened
    elif event in _PAIR_EVENTS:
        paths = arguments[:2]
    elif event == "subprocess.Popen":
        command = arguments[1]
        if isinstance(command, (list, tuple)) and str(HARNESS) in map(str, command):
            world.recordings += 1
    for path in paths:
        if isinstance(path, (str, bytes, os.PathLike)):
            where = _resolve(path)
            if where is not None and not where.startswith((f"{world.root}/", *_DEVICES)):
                world.outside.append(f"{event} {where}")
                raise PermissionError(errno.EACCES, "refused by the test", where)


def _resolve(path: str | bytes | os.PathLike[str]) -> str | None:
    try:
        return os.path.realpath(os.fsdecode(path))
    except (OSError, ValueError):
        return None  # no path: the call fails
