"""A trace on another host, through the user's own OpenSSH client: its configuration, agent, jump hosts, sockets.

One connection does it all. A few lines of POSIX shell run there, say what lies at the path, and then send it: as it
is where it is compressed already, else through zstd or gzip. Nothing is installed there, and nothing is kept there.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable
from typing import IO, Any

from tui.trace.remote import Listed, Remote
from tui.trace.source import CutError, FolderError, Source, TraceError
from tui.trace.ssh_failures import connection_failure, last_words

_ALIVE_SECONDS = 15
"""A host that vanishes is noticed after three times this; ssh alone would wait for hours, or for ever."""

_PACK_BYTES = 1 << 18
"""Smaller plain files are sent as they are: starting a compressor takes longer.

338 MB of plain trace over loopback: as they are 3.0 s, through `zstd -1` 1.3 s (23 MB), through `gzip -1` 3.6 s
(33 MB), with `ssh -C` 7.5 s: even where the line costs nothing, packing loses nothing, and -C is never the best.
"""

_NOISE_BYTES = 1 << 18
"""What the host's login scripts may print before our shell speaks."""

_LISTED = 200
"""Traces of a folder, at most: the newest."""

_END_SECONDS = 2.0
_HURRY_SECONDS = 1.0
"""How long ssh may take to end; the shorter one where somebody waits for this process to end too."""

_ENTRY = re.compile(r"(\d+):(\d+):\./(.+\.json(?:\.gz|\.zst|\.xz)?)")

_MARK = b"\n\x1etorchprof-tui "

_LOOK = r"""
export LC_ALL=C; p=$1;
m() { printf "\n\036torchprof-tui %s\n" "$*"; };
if [ -d "$p" ]; then
  CDPATH= cd -- "$p" 2>/dev/null || { m denied; exit 0; };
  m folder;
  if stat -c %s . >/dev/null 2>&1; then f="-c %s:%Y:%n"; else f="-f %z:%m:%N"; fi;
  find -L . -maxdepth 2 -type f "(" -name "*.json" -o -name "*.json.gz" -o -name "*.json.zst" -o -name "*.json.xz" ")"
    -exec stat -L $f "{}" + 2>/dev/null | head -n 2000;
elif [ -r "$p" ]; then
  s=; z=cat;
  if [ -f "$p" ]; then
    s=$(stat -L -c "%s %Y %y %i" -- "$p" 2>/dev/null || stat -L -f "%z %m %Fm %i" -- "$p" 2>/dev/null || wc -c <"$p");
    case $(od -An -tx1 -N4 <"$p" | tr -d " \n") in
      1f8b*|fd377a58|28b52ffd) ;;
      *) if [ "${s%% *}" -ge PACK_BYTES ]; then
           if command -v zstd >/dev/null 2>&1; then z=zstd; elif command -v gzip >/dev/null 2>&1; then z=gzip; fi;
         fi ;;
    esac;
  fi;
  m file $z $s;
  case $z in
    zstd) exec zstd -q -1 -c <"$p" ;;
    gzip) exec gzip -1 -c <"$p" ;;
    *) exec cat <"$p" ;;
  esac;
else
  case $(ls -d -- "$p" 2>&1 >/dev/null) in ""|*ermission*) m denied ;; *) m missing ;; esac;
fi
""".replace("PACK_BYTES", str(_PACK_BYTES))
"""Without single quotes and exclamation marks, which some login shells read, and sent as one line."""


def open_remote(remote: Remote, ask: bool = False) -> Source:
    """The file, on its way. `ask`: ssh may ask for passwords and unknown hosts on the terminal.

    Raises TraceError, one line, where nothing arrives; FolderError, with what lies in it, where it is a folder.
    """
    stream = _SshStream(remote, ask)
    try:
        what, *facts = stream.header().split(" ")
        if what == "folder":
            raise _folder(remote, stream)
        if what != "file":
            why = {"missing": "no such file there", "denied": "no permission to read it there"}
            raise TraceError(f"{remote.spec}: {why.get(what, 'the host gave an answer that makes no sense')}")
        way, *known = facts
        size = int(known[0]) if known and known[0].isdigit() else None
        if size == 0:
            raise TraceError(f"{remote.spec}: the file is empty")
        identity = None
        if len(known) > 2:  # the size alone tells too little
            identity = "\0".join(("ssh", remote.host, str(remote.port or ""), remote.path, *known))
        packed = way != "cat"
        return Source(remote.spec, stream, size, packed_on_the_way=packed, identity=identity, stop=stream.stop)
    except BaseException:
        stream.close()
        raise


def _folder(remote: Remote, stream: _SshStream) -> FolderError:
    """What `find` and `stat` said of a folder, newest first; names that hold a line break are left out."""
    text = b""
    with contextlib.suppress(CutError):
        while part := stream.read(1 << 16):
            text += part
    found = []
    for line in text.decode(errors="surrogateescape").split("\n"):
        entry = _ENTRY.fullmatch(line)
        if entry:
            found.append(Listed(remote.child(entry[3]), int(entry[1]), float(entry[2])))
    found.sort(key=lambda each: (-each.modified, each.spec))
    return FolderError(remote.spec, found[:_LISTED])


class _SshStream:
    """ssh, running. Ended by `close`, and by SIGTERM to this process while it is open."""

    def __init__(self, remote: Remote, ask: bool) -> None:
        self._remote = remote
        self._asked = ask
        self._held = b""
        self._stopped = False
        self._errors: IO[bytes] = tempfile.TemporaryFile(prefix="torchprof-tui-")  # noqa: SIM115  (open as long as ssh runs)
        try:
            # stderr is a file: a master connection that ssh leaves behind would hold a pipe open.
            self._process = subprocess.Popen(
                command(remote, ask),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                bufsize=0,
            )
        except OSError as error:
            self._errors.close()
            if isinstance(error, FileNotFoundError):
                raise TraceError(f"{remote.spec}: needs ssh, OpenSSH's client, which is not here") from error
            raise TraceError(f"{remote.spec}: ssh cannot be started: {error.strerror}") from error
        self._restore = _on_sigterm(lambda: self._end(_HURRY_SECONDS))
        assert self._process.stdout is not None
        self._pipe = self._process.stdout

    def header(self) -> str:
        """The line with which our shell there begins; what login scripts print before it is passed over."""
        text = b"\n"
        while True:
            start = text.find(_MARK)
            end = text.find(b"\n", start + len(_MARK)) if start >= 0 else -1
            if end >= 0:
                self._held = text[end + 1 :]
                return text[start + len(_MARK) : end].decode("ascii", "replace").strip()
            part = self._pipe.read(1 << 16) if len(text) < _NOISE_BYTES else b""
            if not part:
                raise TraceError(f"{self._remote.spec}: {self._no_answer(text)}")
            text += part

    def read(self, size: int) -> bytes:
        """Raises CutError where the other end stopped before its end."""
        if self._held:
            part, self._held = self._held[:size], self._held[size:]
            return part
        part = self._pipe.read(size) or b""
        if not part and not self._stopped:
            status = self._process.wait()
            if status:
                raise CutError(f"the connection to {self._remote.name} ended early: {self._last_words(status)}")
        return part

    def stop(self) -> None:
        """End ssh, if it still runs: nobody wants more. A read that waits in another thread then comes back."""
        self._stopped = True
        self._end()

    def close(self) -> None:
        if self._pipe.closed:
            return
        self.stop()
        self._pipe.close()
        self._errors.close()
        self._restore()

    def _end(self, patience: float = _END_SECONDS) -> None:
        """First politely: ssh may have turned the terminal's echo off to ask for a password."""
        if self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(patience)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()

    def _no_answer(self, printed: bytes) -> str:
        """Why nothing that we can read came, in words for the user."""
        until = time.monotonic() + _END_SECONDS
        while self._process.poll() is None and time.monotonic() < until:
            time.sleep(0.01)
        status = self._process.poll()
        self._end()
        said = self._said()
        if status == 255:
            return connection_failure(self._remote, said, self._asked)
        words = last_words(said) or last_words(printed.decode(errors="replace")) or f"exit status {status}"
        return f"{self._remote.name} did not run what ssh asked it to ({words})"

    def _last_words(self, status: int) -> str:
        ended = f"ssh was stopped by signal {-status}" if status < 0 else f"exit status {status}"
        return last_words(self._said()) or ended

    def _said(self) -> str:
        self._errors.seek(0)
        return self._errors.read(1 << 16).decode(errors="replace")


def command(remote: Remote, ask: bool) -> list[str]:
    """ssh and its arguments. What the user configured for sessions (commands, forwards) is left out, as scp does."""
    options = [
        "RemoteCommand=none",
        "RequestTTY=no",
        "PermitLocalCommand=no",
        "ClearAllForwardings=yes",
        "ForwardAgent=no",
        "ForwardX11=no",
        f"ServerAliveInterval={_ALIVE_SECONDS}",
    ]
    if not ask:
        options.append("BatchMode=yes")
    words = ["ssh"]
    for option in options:
        words += ["-o", option]
    if remote.port is not None:
        words += ["-p", str(remote.port)]
    script = " ".join(_LOOK.split("\n")).strip()
    return [*words, "--", remote.host, f"exec sh -c '{script}' sh {remote.quoted()}"]


def _on_sigterm(stop: Callable[[], None]) -> Callable[[], None]:
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
