"""ssh, running: the user's own OpenSSH client, with a few lines of shell for the host, and what comes back of them."""

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
"""A host that vanishes is noticed after three times this; ssh alone would wait for hours, or for ever."""

_MAX_BANNER_BYTES = 1 << 18
"""What the host's login scripts may print before our shell speaks."""

_TERMINATE_SECONDS = 2.0
_FAST_TERMINATE_SECONDS = 1.0
"""How long ssh may take to end; the shorter one where somebody waits for this process to end too."""

_CONNECT_SECONDS = 120
"""A host that takes the connection and never says a word is given up then, unless the user's configuration has a limit
of its own. A password for a host in between may be typed meanwhile."""

_CONFIG_SECONDS = 5.0
"""For `ssh -G`, which connects to nothing, but runs what the user's configuration asks it to (`Match exec`)."""

LINE_MARK = b"\n\x1etorchprof-tui "
"""What our shell there begins each of its own lines with."""

SHELL_FUNCTIONS = r"""
m() { printf "\n\036torchprof-tui %s\n" "$*"; };
n() { case $(ls -dL -- "$1" 2>&1 >/dev/null) in ""|*ermission*) m denied ;; *) m missing ;; esac; };
"""
"""Functions of that shell: `m` says something to us, `n` why a path cannot be read."""

FIND_TRACES = " -o ".join(f'-name "*{suffix}"' for suffix in TRACE_SUFFIXES)
"""The expression with which `find` matches the names of traces."""


class SshStream:
    """`script` is run there with each of `there`, paths on one host, as an argument. `ask`: ssh may ask for passwords
    and unknown hosts on the terminal. `held`: the script goes on until this process, which it reads from, lets go.

    Ended by `close`, and by SIGTERM to this process while it is open. Raises TraceError where ssh cannot be started.
    """

    def __init__(self, script: str, targets: Sequence[SshPath], allow_prompt: bool, keep_open: bool = False) -> None:
        remote = targets[0]
        self._path = remote
        self._allow_prompt = allow_prompt
        self._buffer = b""
        self._stopped = False
        self._stderr: IO[bytes] = tempfile.TemporaryFile(prefix="torchprof-tui-")  # noqa: SIM115  (open as long as ssh runs)
        try:
            # stderr is a file: a master connection that ssh leaves behind would hold a pipe open.
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
        """The line with which our shell there begins; what login scripts print before it is passed over."""
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
        """Raises CutError where the other end stopped before its end."""
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
        """End ssh, if it still runs: nobody wants more. A read that waits in another thread then comes back."""
        self._stopped = True
        self._terminate()

    def close(self) -> None:
        if self._pipe.closed:
            return
        self.stop()
        self._pipe.close()
        if self._process.stdin is not None:
            self._process.stdin.close()
        self._stderr.close()
        self._restore_sigterm()

    def _terminate(self, patience: float = _TERMINATE_SECONDS) -> None:
        """First politely: ssh may have turned the terminal's echo off to ask for a password."""
        if self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(patience)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()

    def _describe_no_answer(self, printed: bytes) -> str:
        """Why nothing that we can read came, in words for the user."""
        until = time.monotonic() + _TERMINATE_SECONDS
        while self._process.poll() is None and time.monotonic() < until:
            time.sleep(0.01)
        status = self._process.poll()
        self._terminate()
        said = self._read_stderr()
        if status == 255:
            return describe_connection_failure(self._path, said, self._allow_prompt)
        words = last_line(said) or last_line(printed.decode(errors="replace")) or f"exit status {status}"
        return f"{self._path.host_name} did not run what ssh asked it to ({words})"

    def _describe_exit(self, status: int) -> str:
        ended = f"ssh was stopped by signal {-status}" if status < 0 else f"exit status {status}"
        return last_line(self._read_stderr()) or ended

    def _read_stderr(self) -> str:
        self._stderr.seek(0)
        return self._stderr.read(1 << 16).decode(errors="replace")


@dataclass(frozen=True, slots=True)
class SshConfig:
    """What the user's configuration says of a host: whether a connection is `shared` by the sessions that come after
    it, whether it `stays` when the first of them has ended, and whether connecting has a `limit` in time."""

    shares_connection: bool = False
    persists_connection: bool = False
    has_connect_timeout: bool = False


def read_ssh_config(path: SshPath) -> SshConfig:
    """Ask ssh, which knows its configuration best. Nothing is connected to."""
    asked = ["ssh", *_port_options(path), "-G", "--", path.host]
    try:
        said = subprocess.run(
            asked, stdin=subprocess.DEVNULL, capture_output=True, timeout=_CONFIG_SECONDS, check=False
        ).stdout.decode(errors="replace")
    except (OSError, subprocess.TimeoutExpired):
        return SshConfig()
    known = dict(line.partition(" ")[::2] for line in said.splitlines())
    shared = known.get("controlmaster", "false") not in ("false", "no") and known.get("controlpath", "none") != "none"
    stays = shared and known.get("controlpersist", "no") not in ("no", "false")
    return SshConfig(shared, stays, known.get("connecttimeout", "none") != "none")


def build_ssh_command(
    script: str, targets: Sequence[SshPath], allow_prompt: bool, keep_open: bool = False
) -> list[str]:
    """ssh and its arguments. What the user configured for sessions (commands, forwards) is left out, as scp does."""
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
    found = read_ssh_config(remote)
    if not found.has_connect_timeout:
        options.append(f"ConnectTimeout={_CONNECT_SECONDS}")
    if not keep_open and found.shares_connection and not found.persists_connection:
        # Others' sessions over our connection would keep ssh, and so us, from ending. Theirs we use.
        options.append("ControlMaster=no")
    words = ["ssh"]
    for option in options:
        words += ["-o", option]
    lines = " ".join(script.split("\n")).strip()
    paths = " ".join(each.quote_path() for each in targets)
    return [*words, *_port_options(remote), "--", remote.host, f"exec sh -c '{lines}' sh {paths}"]


def _port_options(remote: SshPath) -> list[str]:
    return [] if remote.port is None else ["-p", str(remote.port)]


def _install_sigterm_handler(stop: Callable[[], None]) -> Callable[[], None]:
    """Have SIGTERM call `stop` before it does what it did; returns what undoes that.

    Whoever gives up on a trace ends its loader with SIGTERM. ssh on a connection that stands still would outlive it.
    """
    if threading.current_thread() is not threading.main_thread():
        return lambda: None

    def stopped(sign: int, frame: Any) -> None:
        stop()
        signal.signal(sign, before if before is not None else signal.SIG_DFL)
        os.kill(os.getpid(), sign)

    before = signal.signal(signal.SIGTERM, stopped)

    def restore() -> None:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, before if before is not None else signal.SIG_DFL)

    return restore
