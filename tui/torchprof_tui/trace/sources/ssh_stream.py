"""Run a shell script on a host through the user's OpenSSH client, and read its output."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import IO, Any

from torchprof_tui.trace.core.errors import ConnectionLostError, TraceError
from torchprof_tui.trace.sources.ssh_errors import describe_connection_failure, last_line
from torchprof_tui.trace.specs.address import TRACE_SUFFIXES, SshPath

_KEEPALIVE_SECONDS = 15
"""ServerAliveInterval: a lost host is detected after three times this; ssh alone may wait for hours or for ever."""

_MAX_BANNER_BYTES = 1 << 18
"""Output of the host's login scripts that is skipped before the first line of our script."""

_TERMINATE_SECONDS = 2.0
_FAST_TERMINATE_SECONDS = 1.0
"""Time for ssh to exit before it is killed; the shorter one when this process is being terminated too."""

_CONNECT_SECONDS = 120
"""ConnectTimeout for hosts that accept the connection and never answer, unless the user's configuration sets one. Long
enough to type a password for a jump host."""

_CONFIG_SECONDS = 5.0
"""Limit for `ssh -G`, which does not connect but runs the commands in the user's configuration (`Match exec`)."""

LINE_MARK = b"\n\x1etorchprof-tui "
"""Prefix of each line that our script prints itself."""

SHELL_FUNCTIONS = r"""
m() { printf "\n\036torchprof-tui %s\n" "$*"; };
n() { case $(ls -dL -- "$1" 2>&1 >/dev/null) in ""|*ermission*) m denied ;; *) m missing ;; esac; };
"""
"""Functions for scripts: `m` prints a message line, `n` prints why a path cannot be read."""

FIND_TRACES = " -o ".join(f'-name "*{suffix}"' for suffix in TRACE_SUFFIXES)
"""The expression with which `find` matches the names of traces."""


class SshStream:
    """Output of a script that runs on a host, with paths on that host as its arguments.

    `allow_prompt`: ssh may ask for passwords and unknown hosts on the terminal. `keep_open`: connect the
    script's stdin, which ends when this stream is closed or this process dies.

    ssh is terminated by `close`, and by SIGTERM to this process. Raises TraceError if ssh cannot be started.
    """

    def __init__(self, script: str, targets: Sequence[SshPath], allow_prompt: bool, keep_open: bool = False) -> None:
        remote = targets[0]
        self._path = remote
        self._allow_prompt = allow_prompt
        self._buffer = b""
        self._stopped = False
        self._stderr: IO[bytes] = tempfile.TemporaryFile(prefix="torchprof-tui-")  # noqa: SIM115  (open as long as ssh runs)
        try:
            # stderr is a file, because a ControlMaster left running by ssh would keep a pipe open.
            self._process = subprocess.Popen(
                build_ssh_command(script, targets, allow_prompt, keep_open),
                stdin=subprocess.PIPE if keep_open else subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=self._stderr,
                bufsize=0,
            )
        except OSError as error:
            self._stderr.close()
            if isinstance(error, FileNotFoundError):
                raise TraceError(f"{remote.spec}: needs ssh, OpenSSH's client, which is not here") from error
            raise TraceError(f"{remote.spec}: ssh cannot be started: {error.strerror}") from error
        self._restore_sigterm = _install_sigterm_handler(lambda: self._terminate(_FAST_TERMINATE_SECONDS))
        assert self._process.stdout is not None
        self._pipe = self._process.stdout

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
                raise TraceError(f"{self._path.spec}: {self._describe_no_answer(text)}")
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
                raise ConnectionLostError(
                    f"the connection to {self._path.host_name} ended early: {self._describe_exit(status)}"
                )
        return part

    def stop(self) -> None:
        """Terminate ssh. Unblocks a read in progress on another thread."""
        self._stopped = True
        self._terminate()

    def close(self) -> None:
        """Terminate ssh and close its pipes. May be called again."""
        if self._pipe.closed:
            return
        self.stop()
        self._pipe.close()
        if self._process.stdin is not None:
            self._process.stdin.close()
        self._stderr.close()
        self._restore_sigterm()

    def _terminate(self, patience: float = _TERMINATE_SECONDS) -> None:
        """Send SIGTERM first, SIGKILL after `patience` seconds: ssh may have to restore the terminal's echo."""
        if self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(patience)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()

    def _describe_no_answer(self, printed: bytes) -> str:
        """Explain to the user why the script's first line did not arrive."""
        deadline = time.monotonic() + _TERMINATE_SECONDS
        while self._process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.01)
        status = self._process.poll()
        self._terminate()
        stderr = self._read_stderr()
        if status == 255:
            return describe_connection_failure(self._path, stderr, self._allow_prompt)
        reason = last_line(stderr) or last_line(printed.decode(errors="replace")) or f"exit status {status}"
        return f"{self._path.host_name} did not run what ssh asked it to ({reason})"

    def _describe_exit(self, status: int) -> str:
        exit_reason = f"ssh was stopped by signal {-status}" if status < 0 else f"exit status {status}"
        return last_line(self._read_stderr()) or exit_reason

    def _read_stderr(self) -> str:
        self._stderr.seek(0)
        return self._stderr.read(1 << 16).decode(errors="replace")


@dataclass(frozen=True, slots=True)
class SshConfig:
    """The user's configuration for a host.

    `shares_connection`: later sessions use an open connection (ControlMaster). `persists_connection`: it stays open
    after its first session (ControlPersist). `has_connect_timeout`: ConnectTimeout is set.
    """

    shares_connection: bool = False
    persists_connection: bool = False
    has_connect_timeout: bool = False


def read_ssh_config(path: SshPath) -> SshConfig:
    """Read the configuration for a host with `ssh -G`, without connecting."""
    command = ["ssh", *_port_options(path), "-G", "--", path.host]
    try:
        output = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, timeout=_CONFIG_SECONDS, check=False
        ).stdout.decode(errors="replace")
    except (OSError, subprocess.TimeoutExpired):
        return SshConfig()
    options = dict(line.partition(" ")[::2] for line in output.splitlines())
    master, control_path = options.get("controlmaster", "false"), options.get("controlpath", "none")
    shares = master not in ("false", "no") and control_path != "none"
    persists = shares and options.get("controlpersist", "no") not in ("no", "false")
    return SshConfig(shares, persists, options.get("connecttimeout", "none") != "none")


def build_ssh_command(
    script: str, targets: Sequence[SshPath], allow_prompt: bool, keep_open: bool = False
) -> list[str]:
    """Build the ssh command line. Disables what the user configured for sessions (commands, forwards), as scp does."""
    remote = targets[0]
    options = [
        "RemoteCommand=none",
        "RequestTTY=no",
        "PermitLocalCommand=no",
        "ClearAllForwardings=yes",
        "ForwardAgent=no",
        "ForwardX11=no",
        f"ServerAliveInterval={_KEEPALIVE_SECONDS}",
    ]
    if not allow_prompt:
        options.append("BatchMode=yes")
    config = read_ssh_config(remote)
    if not config.has_connect_timeout:
        options.append(f"ConnectTimeout={_CONNECT_SECONDS}")
    if not keep_open and config.shares_connection and not config.persists_connection:
        # Use an open master connection but do not become one: later sessions would keep our ssh from exiting.
        options.append("ControlMaster=no")
    command = ["ssh"]
    for option in options:
        command += ["-o", option]
    script_line = " ".join(script.split("\n")).strip()
    paths = " ".join(target.quote_path() for target in targets)
    return [*command, *_port_options(remote), "--", remote.host, f"exec sh -c '{script_line}' sh {paths}"]


def _port_options(remote: SshPath) -> list[str]:
    return [] if remote.port is None else ["-p", str(remote.port)]


def _install_sigterm_handler(stop: Callable[[], None]) -> Callable[[], None]:
    """Make SIGTERM call `stop` before its previous action; returns a function that restores the previous handler.

    A cancelled loader is ended by SIGTERM, and an ssh that waits on an idle connection would outlive it.
    """
    if threading.current_thread() is not threading.main_thread():
        return lambda: None

    def handle(signal_number: int, frame: Any) -> None:
        stop()
        signal.signal(signal_number, previous if previous is not None else signal.SIG_DFL)
        os.kill(os.getpid(), signal_number)

    previous = signal.signal(signal.SIGTERM, handle)

    def restore() -> None:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, previous if previous is not None else signal.SIG_DFL)

    return restore
