"""Answer `torchprof-tui attach --watch-hang` from a thread: how many steps have ended, and what the rank waits for.

A handler of a signal runs in the main thread, which does not come back from a collective that hangs. The thread reads a
named pipe in the user's private folder; until a line is written there it does not run. A request names a private
folder, and whether the flight recorder is wanted, too.
"""

from __future__ import annotations

import contextlib
import json
import os
import stat
import threading

from .hang_watch import HangWatch

MAX_REQUEST_BYTES = 4096
REASON = "asked by attach"


def listen(path: str, watch: HangWatch) -> bool:
    """Answer what is written to a named pipe, which is created, with what `watch` knows.

    Returns False where another thread reads it.
    """
    try:
        os.mkfifo(path, 0o600)
    except FileExistsError:
        try:
            os.close(os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_NOFOLLOW))
            return False
        except OSError:  # no reader: left by the program that this process ran before `exec`
            os.unlink(path)
            os.mkfifo(path, 0o600)
    descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)  # for writing, too: it never ends
    threading.Thread(target=_read, args=(descriptor, watch), name="torchprof-hang-requests", daemon=True).start()
    return True


def _read(descriptor: int, watch: HangWatch) -> None:
    while True:
        for line in os.read(descriptor, MAX_REQUEST_BYTES).splitlines():
            with contextlib.suppress(Exception):  # the program must not notice
                _answer(json.loads(line), watch)


def _answer(request: dict[str, object], watch: HangWatch) -> None:
    folder = str(request["folder"])
    state = os.lstat(folder)
    if stat.S_ISDIR(state.st_mode) and state.st_uid == os.geteuid() and not state.st_mode & 0o077:
        watch.write_to(folder, REASON, bool(request.get("recorder")))
