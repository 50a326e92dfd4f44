"""Refuse that a program under trial changes files that were there before: it is run several times.

New files are allowed and listed, so that they can be removed after the run. What torch and Inductor keep in caches and
temporary folders is not the program's. A program that starts other programs is refused: what they write is not seen,
nor are writes of C++ code other than torch.save's.
"""

from __future__ import annotations

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
    "shutil.rmtree": ((0, 1),),
    "shutil.move": ((0, None), (1, None)),
    "shutil.copyfile": ((1, None),),
}
"""Audit events (docs.python.org, "Audit events table") → arguments that are paths which change, and that of the folder
that they are relative to."""

_STARTS = ("subprocess.Popen", "os.system", "os.posix_spawn", "os.exec", "os.spawn")
_STARTERS = ("/torch/", "/triton/", "/multiprocessing/", "/ctypes/", "/platform.py", "/numpy/", "/uuid.py")
"""Parts of paths of code that starts compilers, loaders and tools of its own."""


class UnsafeWriteError(BaseException):
    """The program would change what was there before. No `Exception`: the program must not survive it."""


class WriteGuard:
    """Watch what the program writes from `install` on. `created`: new files and folders, in order."""

    def __init__(self) -> None:
        self.created: list[str] = []
        self.refused = ""
        self._known: set[str] = set()
        self._is_busy = False
        caches = (
            os.environ.get(name, "") for name in ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR", "XDG_CACHE_HOME")
        )
        own = ["/dev", "/proc", "/sys", "~/.cache", "~/.triton", "~/.nv", *caches]
        temporary, cwd = os.path.realpath(tempfile.gettempdir()), os.path.realpath(os.getcwd())
        if not _is_inside(cwd, temporary):  # else the program's own files lie there
            own.append(temporary)
        self._ignored = [os.path.realpath(os.path.expanduser(each)) for each in own if each]
        inductor = [
            os.path.join(temporary, name) for name in os.listdir(temporary) if name.startswith("torchinductor_")
        ]
        self._ignored += [*inductor, os.path.join(temporary, "torchinductor_")]

    def install(self) -> None:
        """Watch from now on; there is no way back in this process."""
        sys.addaudithook(self._audit)

    def watch_torch_save(self, torch: Any) -> None:
        """Watch torch.save, whose files C++ opens."""
        save = torch.save

        def guarded_save(obj: Any, f: Any, *args: Any, **kwargs: Any) -> Any:
            if isinstance(f, (str, os.PathLike)):
                self._note(os.fspath(f))
            return save(obj, f, *args, **kwargs)

        torch.save = guarded_save

    def _audit(self, event: str, args: tuple[Any, ...]) -> None:
        if self._is_busy:
            return
        if event == "open":
            path, mode, flags = args
            is_writing = isinstance(mode, str) and any(letter in mode for letter in "wax+")
            if is_writing or (not isinstance(mode, str) and isinstance(flags, int) and flags & _WRITING):
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
        if not isinstance(path, (str, bytes, os.PathLike)):
            return  # a descriptor, whose file was opened before
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
                self._refuse(f"change {full}, which was there before")
            self._known.add(full)
            self.created.append(full)
        finally:
            self._is_busy = False

    def _refuse(self, what: str) -> None:
        self.refused = self.refused or what
        raise UnsafeWriteError(what)


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
