"""Refuse that a program under trial changes files that were there before: it is run several times.

New files are allowed and noted in a journal, which all processes of the run share, so that they can be removed after
it, however it ends. What torch and Inductor keep in caches and temporary folders is not the program's. A program that
starts other programs is refused: what they write is not seen, nor are writes of C++ code other than torch.save's.
Forked processes are watched as their parent is, but must not train: their steps are not measured.
"""

from __future__ import annotations

import functools
import importlib
import json
import multiprocessing.process
import os
import sys
import tempfile
from typing import Any

_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_CHANGES = {
    "os.remove": ((0, 1),),
    "os.rmdir": ((0, 1),),
    "os.rename": ((0, 2), (1, 3)),
    "os.truncate": ((0, None),),
    "os.link": ((1, 3),),
    "os.symlink": ((1, 2),),
    "os.chmod": ((0, 2),),
    "os.utime": ((0, 3),),
    "sqlite3.connect": ((0, None),),
    "shutil.rmtree": ((0, 1),),
    "shutil.move": ((0, None), (1, None)),
    "shutil.copyfile": ((1, None),),
}
"""Audit events (docs.python.org, "Audit events table") → arguments that are paths which change, and that of the folder
that they are relative to."""

_STARTS = ("subprocess.Popen", "os.system", "os.posix_spawn", "os.exec", "os.spawn")
_LOADER_MODULE = "torch.utils.data._utils.worker"
_HELPER_MODULES = ("multiprocessing.managers", "multiprocessing.resource_sharer")
_STARTERS = ("/torch/", "/triton/", "/multiprocessing/", "/ctypes/", "/platform.py", "/numpy/", "/uuid.py")
"""Parts of paths of code that starts compilers, loaders and tools of its own."""


class UnsafeWriteError(BaseException):
    """The program would change what was there before. No `Exception`: the program must not survive it."""


class WriteGuard:
    """Watch what the program writes from `install` on.

    `journal`: a file that gets a JSON object a line: "created", a new file or folder, or "refused", what the program
    would have done. `own_folder`: files of the recorder, which are not watched.
    """

    def __init__(self, journal: str, own_folder: str) -> None:
        self._journal = os.open(journal, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        self._known: set[str] = set()
        self._is_busy = False
        caches = (
            os.environ.get(name, "") for name in ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR", "XDG_CACHE_HOME")
        )
        own = [own_folder, "/dev", "/proc", "/sys", "~/.cache", "~/.triton", "~/.nv", *caches]
        temporary, cwd = os.path.realpath(tempfile.gettempdir()), os.path.realpath(os.getcwd())
        if not _is_inside(cwd, temporary):  # else the program's own files lie there
            own.append(temporary)
        self._ignored = [os.path.realpath(os.path.expanduser(each)) for each in own if each]
        inductor = [
            os.path.join(temporary, name) for name in os.listdir(temporary) if name.startswith("torchinductor_")
        ]
        self._ignored += [*inductor, os.path.join(temporary, "torchinductor_")]

    def install(self, torch: Any) -> None:
        """Watch from now on; there is no way back in this process."""
        self._watch_torch_save(torch)
        self._watch_processes()
        hook = importlib.import_module("torch.optim.optimizer").register_optimizer_step_pre_hook
        os.register_at_fork(after_in_child=lambda: hook(lambda *_: self._refuse("train in a process that it starts")))
        sys.addaudithook(self._audit)

    def _watch_torch_save(self, torch: Any) -> None:
        """Watch torch.save, whose files C++ opens."""
        save = torch.save

        def guarded_save(obj: Any, f: Any, *args: Any, **kwargs: Any) -> Any:
            if isinstance(f, (str, os.PathLike)):
                self._note(os.fspath(f))
            return save(obj, f, *args, **kwargs)

        torch.save = guarded_save

    def _watch_processes(self) -> None:
        """Refuse processes of multiprocessing that are not forked, but for a DataLoader's: they have no guard."""
        process: Any = multiprocessing.process.BaseProcess
        original = process.start

        @functools.wraps(original)
        def guarded_start(instance: Any) -> None:
            target = getattr(instance, "_target", None)
            module = getattr(target, "__module__", "") or ""
            method = getattr(instance, "_start_method", None) or multiprocessing.get_start_method()
            if method != "fork" and module not in (_LOADER_MODULE, *_HELPER_MODULES):
                self._refuse(f"start a process by {method}")
            original(instance)

        process.start = guarded_start

    def _audit(self, event: str, args: tuple[Any, ...]) -> None:
        if self._is_busy:
            return
        if event == "open":
            path, mode, flags = args
            is_writing = isinstance(mode, str) and any(letter in mode for letter in "wax+")
            if is_writing or (not isinstance(mode, str) and isinstance(flags, int) and flags & _WRITING):
                if not isinstance(path, int) and os.path.isdir(path):
                    return  # tempfile.TemporaryFile, whose files have no name (O_TMPFILE)
                self._note(path)
        elif event == "os.mkdir":
            self._note(args[0], args[2] if len(args) > 2 else None, is_folder=True)
        elif event in _CHANGES:
            for index, folder in _CHANGES[event]:
                self._note(args[index], args[folder] if folder is not None and folder < len(args) else None)
        elif event in _STARTS and not _is_started_by_library():
            self._refuse(f"start another program ({_name_program(event, args)})")

    def _note(self, path: Any, folder: Any = None, is_folder: bool = False) -> None:
        """Note a path that is written, created or removed. `folder`: the descriptor that it is relative to."""
        if not isinstance(path, (str, bytes, os.PathLike)) or path in ("", ":memory:"):
            return  # a descriptor, whose file was opened before; a database without a file
        self._is_busy = True
        try:
            text = os.fsdecode(path)
            if isinstance(folder, int) and folder >= 0 and not os.path.isabs(text):
                text = os.path.join(os.readlink(f"/proc/self/fd/{folder}"), text)
            full = os.path.join(os.path.realpath(os.path.dirname(os.path.abspath(text))), os.path.basename(text))
            if full in self._known or "__pycache__" in full or any(_is_inside(full, each) for each in self._ignored):
                return
            if os.path.lexists(full):
                if is_folder or not (os.path.isdir(full) or os.path.isfile(full) or os.path.islink(full)):
                    return  # makedirs(exist_ok=True); a pipe or a device
                if full not in self._read_created():
                    self._refuse(f"change {full}, which was there before")
            else:
                self._write("created", full)
            self._known.add(full)
        finally:
            self._is_busy = False

    def _refuse(self, what: str) -> None:
        self._write("refused", what)
        raise UnsafeWriteError(what)

    def _write(self, kind: str, what: str) -> None:
        os.write(self._journal, (json.dumps({kind: what}) + "\n").encode("ascii"))

    def _read_created(self) -> set[str]:
        """Read what this process and others of the run have created."""
        lines = os.pread(self._journal, os.fstat(self._journal).st_size, 0).splitlines()
        return {each["created"] for each in map(json.loads, lines) if "created" in each}


def _is_inside(path: str, folder: str) -> bool:
    return (
        path == folder
        or path.startswith(folder.rstrip(os.sep) + os.sep)
        or (folder.endswith("_") and path.startswith(folder))
    )


def _is_started_by_library() -> bool:
    """Whether the innermost caller outside of Python's own subprocess and os modules is torch, or another library."""
    frame = sys._getframe(2)
    while frame is not None:
        path = frame.f_code.co_filename.replace("\\", "/")
        if any(part in path for part in _STARTERS):
            return True
        if not path.endswith(("/subprocess.py", "/os.py", "write_guard.py")) and "site-packages" not in path:
            return False
        frame = frame.f_back  # type: ignore[assignment]
    return False


def _name_program(event: str, args: tuple[Any, ...]) -> str:
    named = args[0] if args and isinstance(args[0], (str, bytes)) else event
    return os.fsdecode(named)[:80]
