"""Serve Kineto's IPC fabric where dynolog would: profilers ask over a Unix datagram socket what to record.

A process that was started with `KINETO_USE_DAEMON=1` sends `req` every 5 s to the socket `dynolog`, and records what
the answer says. A message is a header of 40 bytes, the size of its body (uint64) and its type (32 bytes, ends with a
zero), then the body:

    ctxt   int32 GPU, int32 pid, int64 job                         answered by an int32: how many are registered
    req    int32 kinds (2: activities), int32 n, int64 job, n × int32 pids, its own first
                                                                   answered by lines NAME=VALUE, or nothing

Facts: pytorch/kineto libkineto/src/IpcFabricConfigClient.cpp and dynolog/src/ipcfabric, checked against torch 2.13.

The socket has an abstract name, which every user of the host may send to and nobody can protect; the kernel tells who
sent a datagram, and those of other users are dropped. Where the job names a folder (`KINETO_IPC_SOCKET_DIR`), the
socket is a file in it, with mode 0600, and the folder must be the user's own.
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import struct
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from torchprof_attach.host.processes import check_private, find_holder

NAME = "dynolog"
HEADER = struct.Struct("=Q32s")
SO_TIMESTAMPNS = 35  # Linux: with each datagram comes when it was sent. Python has no name for it
TIMESTAMP = struct.Struct("@ll")
CREDENTIALS = struct.Struct("=iII")
REQUEST = struct.Struct("=iiq")
ACTIVITIES = 2  # Bit of a request's kinds: the profiler is free to record

MAX_MESSAGE_BYTES = 1 << 16
LATE_SECONDS = 0.03
"""Kineto waits 50 ms for an answer, and takes a later one for that to its next question, for ever one behind. An older
question is not answered: it is asked again 5 s later."""


class SocketTakenError(OSError):
    """Another program holds the socket. `pid`: its number, 0 where it is another user's; `command`: its command."""

    def __init__(self, pid: int, command: str) -> None:
        held = f"pid {pid}: {command}" if pid else "a process of another user"
        super().__init__(f"Kineto's socket is held by {held}")
        self.pid, self.command = pid, command


class Message(NamedTuple):
    """What a profiler asked. `pid`: as the kernel says. `kind`: "ctxt" or "req". `free`: it can record now."""

    pid: int
    kind: str
    free: bool


def check_free(folder: str) -> None:
    """Raise what `Fabric` would raise, without opening the socket: profilers that ask are not answered by a list."""
    path = f"{check_private(folder)}/{NAME}" if folder else ""
    if _is_held(path or f"\0{NAME}\0"):
        raise SocketTakenError(*find_holder(path or f"@{NAME}"))


class Fabric:
    """A socket that answers profilers. `folder`: "" for the abstract name. `give`: returns the text for a process,
    None for no answer.

    Raises SocketTakenError, and OSError (one line) where the folder is not private.
    """

    def __init__(self, folder: str, give: Callable[[int, bool], str | None]) -> None:
        self.folder = folder
        self.seen: dict[int, float] = {}  # by pid: when it last asked (time.monotonic)
        self.refused = 0  # datagrams of other users, and what is none of the protocol
        self._give = give
        self._path = f"{check_private(folder)}/{NAME}" if folder else ""
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
        try:
            self.socket.setblocking(False)
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
            self.socket.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
            self._bind()
        except BaseException:
            self.socket.close()
            raise

    def _bind(self) -> None:
        if not self._path:
            try:
                self.socket.bind(f"\0{NAME}\0")
            except OSError as error:
                if error.errno == errno.EADDRINUSE:
                    raise SocketTakenError(*find_holder(f"@{NAME}")) from error
                raise
            return
        if _is_held(self._path):
            raise SocketTakenError(*find_holder(self._path))
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._path)  # left by a daemon that was killed
        mask = os.umask(0o177)
        try:
            self.socket.bind(self._path)
        finally:
            os.umask(mask)

    def fileno(self) -> int:
        return self.socket.fileno()

    def receive(self) -> Message | None:
        """Answer one datagram. Returns None where there is none, or where it is not of this user."""
        try:
            data, ancillary, _, address = self.socket.recvmsg(MAX_MESSAGE_BYTES, 256)
        except (BlockingIOError, InterruptedError):
            return None
        pid, user, sent = _read_origin(ancillary)
        message = self._parse(pid, data) if pid > 0 and user == os.geteuid() else None
        if message is None:
            self.refused += 1
            return None
        self.seen[message.pid] = time.monotonic()
        if message.kind == "ctxt":
            self._send(address, "ctxt", struct.pack("=i", len(self.seen)))
        else:
            text = self._give(message.pid, message.free) if time.time() - sent < LATE_SECONDS else None
            if text is not None:
                self._send(address, "req", text.encode())
        return message

    @staticmethod
    def _parse(pid: int, data: bytes) -> Message | None:
        if len(data) < HEADER.size:
            return None
        size, raw_kind = HEADER.unpack_from(data)
        body, kind = data[HEADER.size :], raw_kind.split(b"\0")[0]
        if size != len(body) or kind not in (b"ctxt", b"req") or size < REQUEST.size:
            return None
        kinds, count, _ = REQUEST.unpack_from(body)
        if kind == b"req" and not 0 <= count * 4 <= size - REQUEST.size:
            return None
        return Message(pid, kind.decode(), kind == b"req" and bool(kinds & ACTIVITIES))

    def _send(self, address: Any, kind: str, body: bytes) -> None:
        with contextlib.suppress(OSError):  # it has ended, or its queue is full: it asks again
            self.socket.sendto(HEADER.pack(len(body), kind.encode()) + body, socket.MSG_DONTWAIT, address)

    def close(self) -> None:
        """Close the socket and remove its file: with none, Kineto's client gives up at once."""
        self.socket.close()
        if self._path:
            with contextlib.suppress(OSError):
                os.unlink(self._path)


def _read_origin(ancillary: list[tuple[int, int, bytes]]) -> tuple[int, int, float]:
    """Read who sent a datagram, and when: pid (0: unknown), user, s since the epoch (now where it is not said)."""
    pid, user, sent = 0, -1, time.time()
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_CREDENTIALS and len(data) >= CREDENTIALS.size:
            pid, user, _ = CREDENTIALS.unpack_from(data)
        elif level == socket.SOL_SOCKET and kind == SO_TIMESTAMPNS and len(data) >= TIMESTAMP.size:
            seconds, nanoseconds = TIMESTAMP.unpack_from(data)
            sent = float(seconds + nanoseconds / 1e9)
    return pid, user, sent


def _is_held(path: str) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(path)
        except OSError:
            return False
    return True


def format_config(path: str, request: dict[str, object]) -> str:
    """Format what Kineto shall record. `path`: Kineto adds `_PID` before `.json`. `request`: see `agent`."""
    options = request.get("options") or ()
    assert isinstance(options, (list, tuple))
    window = request.get("window_ms")
    lines = [f"ACTIVITIES_LOG_FILE={path}"]
    if window:
        lines += ["PROFILE_START_TIME=0", "ACTIVITIES_WARMUP_PERIOD_SECS=1", f"ACTIVITIES_DURATION_MSECS={window}"]
    else:
        lines += [
            "PROFILE_START_ITERATION=0",
            f"PROFILE_START_ITERATION_ROUNDUP={request.get('multiple') or 1}",
            f"ACTIVITIES_ITERATIONS={request['steps']}",
        ]
    for option, names in KINETO_OPTIONS.items():
        lines += [f"{name}={'true' if option in options else 'false'}" for name in names]
    return "\n".join(lines) + "\n"


KINETO_OPTIONS = {
    "shapes": ("PROFILE_REPORT_INPUT_SHAPES",),
    "memory": ("PROFILE_PROFILE_MEMORY",),
    "stacks": ("PROFILE_WITH_STACK",),
    "flops": ("PROFILE_WITH_FLOPS",),
    "modules": ("PROFILE_WITH_MODULES",),
}
"""Names of Kineto's options for ours."""
