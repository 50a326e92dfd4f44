"""Run a shell script on a host through the user's OpenSSH client, and read its output."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from typing import IO, Any

from torchprof_tui.trace.core.errors import ConnectionLostError, TraceError
from torchprof_tui.trace.sources.listing import MAX_LISTING_BYTES
from torchprof_tui.trace.sources.ssh_command import (
    NO_CLIENT,
    TERMINATE_SECONDS,
    build_ssh_command,
    create_connection_error,
    end_ssh,
    last_line,
)
from torchprof_tui.trace.specs.address import TRACE_SUFFIXES, SshPath

_MAX_BANNER_BYTES = 1 << 18  # output of the host's login scripts that is skipped before the first line of our script
_FAST_TERMINATE_SECONDS = 1.0  # time for ssh to exit before it is killed when this process is being terminated too
LINE_MARK = b"\n\x1etorchprof-tui "  # prefix of each line that our script prints itself

SHELL_FUNCTIONS = r"""
m() { printf "\n\036torchprof-tui %s\n" "$*"; };
n() { case $(ls -dL -- "$1" 2>&1 >/dev/null) in ""|*ermission*) m denied ;; *) m missing ;; esac; };
"""
"""Functions for scripts: `m` prints a message line, `n` prints why a path cannot be read."""

FIND_TRACES = " -o ".join(f'-name "*{suffix}"' for suffix in TRACE_SUFFIXES)
"""The expression with which `find` matches the names of traces."""


class SshStream:
    """Output of a script that runs on a host, with paths on that host as its arguments.

    ssh asks nothing: `SshConnections` does, before. `keep_open`: connect the script's stdin, which ends when this
    stream is closed or this process dies.

    ssh is terminated by `close`, and by SIGTERM or SIGHUP to this process. Raises TraceError if ssh cannot be started.
    """

    def __init__(self, script: str, targets: Sequence[SshPath], keep_open: bool = False) -> None:
        self._targets = targets
        self._path = targets[0]
        self._buffer = b""
        self._stopped = False
        self._start(script, keep_open)
        self._restore_signals = _install_signal_handlers(lambda: end_ssh(self._process, _FAST_TERMINATE_SECONDS))

    def _start(self, script: str, keep_open: bool = False) -> None:
        self._stderr: IO[bytes] = tempfile.TemporaryFile(prefix="torchprof-tui-")  # noqa: SIM115  (open as long as ssh runs)
        try:
            # stderr is a file, because a ControlMaster left running by ssh would keep a pipe open.
            self._process = subprocess.Popen(
                build_ssh_command(script, self._targets, keep_open),
                stdin=subprocess.PIPE if keep_open else subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=self._stderr,
                bufsize=0,
                # Without a terminal of its own, not even a jump host's ssh can write over the screen.
                start_new_session=True,
            )
        except OSError as error:
            self._stderr.close()
            if isinstance(error, FileNotFoundError):
                raise TraceError(f"{self._path.spec}: {NO_CLIENT}") from error
            raise TraceError(f"{self._path.spec}: ssh cannot be started: {error.strerror}") from error
        assert self._process.stdout is not None
        self._pipe = self._process.stdout

    def restart(self, script: str) -> str:
        """Run another script over a new connection, whose output `read` returns; returns its first line.

        Raises ConnectionLostError where the host cannot be reached any more.
        """
        end_ssh(self._process)
        self._pipe.close()
        self._stderr.close()
        try:
            self._start(script)
            return self.read_header()
        except TraceError as error:
            raise ConnectionLostError(f"not resumed: {str(error).removeprefix(f'{self._path.spec}: ')}") from error

    def read_header(self) -> str:
        """Read the first line of our script, skipping the output of login scripts before it. Raises TraceError."""
        text = b"\n"
        while True:
            start = text.find(LINE_MARK)
            end = text.find(b"\n", start + len(LINE_MARK)) if start >= 0 else -1
            if end >= 0:
                self._buffer = text[end + 1 :]
                return text[start + len(LINE_MARK) : end].decode("ascii", "replace").strip()
            part = self._pipe.read(1 << 16) if len(text) < _MAX_BANNER_BYTES else b""
            if not part:
                raise self._create_no_answer_error(text)
            text += part

    def read(self, size: int) -> bytes:
        """Read at most `size` bytes. Raises ConnectionLostError if ssh failed before the end of the output."""
        if self._buffer:
            part, self._buffer = self._buffer[:size], self._buffer[size:]
            return part
        part = self._pipe.read(size) or b""
        if not part and not self._stopped:
            status = self._process.wait()
            if status:
                exit_reason = f"ssh was stopped by signal {-status}" if status < 0 else f"exit status {status}"
                reason = last_line(self._read_stderr()) or exit_reason
                raise ConnectionLostError(f"the connection to {self._path.host_name} ended early: {reason}")
        return part

    def read_listing(self, end: bytes = b"") -> bytes:
        """Read a listing, up to `end` or the end of the output.

        Raises TraceError where it is too long, ConnectionLostError.
        """
        text = bytearray()
        while not (end and text.endswith(end)) and (part := self.read(1 << 16)):
            text += part
            if len(text) > MAX_LISTING_BYTES:
                raise TraceError(
                    f"{self._path.spec}: the list is longer than {MAX_LISTING_BYTES >> 20} MB; name a subfolder"
                )
        return bytes(text)

    def stop(self) -> None:
        """Terminate ssh. Unblocks a read in progress on another thread."""
        self._stopped = True
        end_ssh(self._process)

    def close(self) -> None:
        """Terminate ssh and close its pipes. May be called again."""
        if self._pipe.closed:
            return
        self.stop()
        self._pipe.close()
        if self._process.stdin is not None:
            self._process.stdin.close()
        self._stderr.close()
        self._restore_signals()

    def _create_no_answer_error(self, printed: bytes) -> TraceError:
        """Create the error that tells the user why the script's first line did not arrive."""
        deadline = time.monotonic() + TERMINATE_SECONDS
        while self._process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.01)
        status = self._process.poll()
        end_ssh(self._process)
        stderr = self._read_stderr()
        if status == 255:
            return create_connection_error(self._path, stderr)
        reason = last_line(stderr) or last_line(printed.decode(errors="replace")) or f"exit status {status}"
        return TraceError(f"{self._path.spec}: {self._path.host_name} did not run the requested command ({reason})")

    def _read_stderr(self) -> str:
        self._stderr.seek(0)
        return self._stderr.read(1 << 16).decode(errors="replace")


def _install_signal_handlers(stop: Callable[[], None]) -> Callable[[], None]:
    """Make SIGTERM and SIGHUP call `stop` before their previous action; returns a function that restores that.

    A cancelled loader is ended by SIGTERM, a closed terminal sends SIGHUP, and an ssh that waits on an idle connection
    would outlive both.
    """
    if threading.current_thread() is not threading.main_thread():
        return lambda: None

    def handle(signal_number: int, frame: Any) -> None:
        stop()
        signal.signal(signal_number, previous[signal.Signals(signal_number)])
        os.kill(os.getpid(), signal_number)

    previous = {number: signal.getsignal(number) or signal.SIG_DFL for number in (signal.SIGTERM, signal.SIGHUP)}
    for number, handler in previous.items():
        if handler is not signal.SIG_IGN:  # as under nohup
            signal.signal(number, handle)

    def restore() -> None:
        if threading.current_thread() is threading.main_thread():
            for number, handler in previous.items():
                signal.signal(number, handler)

    return restore
