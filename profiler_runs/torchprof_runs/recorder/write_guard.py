"""Refuse that a program under trial changes files that were there before: it is run several times.

New files are allowed and listed, so that they can be removed after the run. What torch and Inductor keep in caches and
temporary folders is not the program's. Writes of C++ code other than torch.save's are not seen.
"""

from __future__ import annotations

import os
import sys
import tempfile
from typing import Any

_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_CHANGES = {
    "os.remove": (0,),
    "os.rename": (0, 1),
    "os.truncate": (0,),
    "os.rmdir": (0,),
    "shutil.rmtree": (0,),
    "shutil.move": (0, 1),
    "shutil.copyfile": (1,),
}
"""Audit events (docs.python.org, "Audit events table") → the arguments that are paths which change."""


class UnsafeWriteError(BaseException):
    """The program would change a file that was there before. No `Exception`: the program must not survive it."""


class WriteGuard:
    """Watch the files that the program writes from `install` on. `created`: new files and folders, in order."""

    def __init__(self) -> None:
        self.created: list[str] = []
        self.refused = ""
        self._known: set[str] = set()
        self._pid = os.getpid()
        caches = (
            os.environ.get(name, "") for name in ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR", "XDG_CACHE_HOME")
        )
        own = ("/dev", "/proc", "/sys", tempfile.gettempdir(), os.path.expanduser("~/.cache"), "~/.triton", "~/.nv")
        self._ignored = tuple(os.path.realpath(os.path.expanduser(each)) for each in (*own, *caches) if each)
        self._is_busy = False

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
            self._note(args[0])
        elif event in _CHANGES:
            for index in _CHANGES[event]:
                self._note(args[index])

    def _note(self, path: Any) -> None:
        if not isinstance(path, (str, bytes, os.PathLike)):
            return  # a descriptor, whose file was opened before
        self._is_busy = True
        try:
            full = os.path.realpath(os.fsdecode(path))
            is_ignored = full.startswith(self._ignored) or "__pycache__" in full
            if is_ignored or full in self._known or not full:
                return
            if os.path.lexists(full):
                if os.path.isdir(full) or not os.path.isfile(full):
                    return  # makedirs(exist_ok=True); a pipe or a device
                self.refused = self.refused or full
                raise UnsafeWriteError(full)
            self._known.add(full)
            if os.getpid() == self._pid:
                self.created.append(full)
        finally:
            self._is_busy = False
