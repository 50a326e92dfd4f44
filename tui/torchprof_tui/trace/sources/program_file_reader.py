"""Read a file of the program: over ssh where the trace was opened from a host, else on this machine."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath

from torchprof_tui.trace.core.errors import ConnectionLostError, TraceError
from torchprof_tui.trace.core.printable import clean
from torchprof_tui.trace.sources.program_file import (
    MAX_FILE_BYTES,
    MAX_PARENTS,
    ProgramFile,
    decode_program_text,
    is_absolute,
    read_local_program_file,
)
from torchprof_tui.trace.sources.ssh_stream import SHELL_FUNCTIONS, SshStream
from torchprof_tui.trace.specs.address import SshPath, is_url, parse_ssh_path

_SCRIPT = r"""
export LC_ALL=C;
SAY
i=0;
for p do
  if [ -f "$p" ]; then
    if [ -r "$p" ]; then
      m file $i;
      exec head -c LIMIT <"$p";
    fi;
    m denied; exit 0;
  fi;
  if [ -e "$p" ]; then m special; exit 0; fi;
  i=$((i+1));
done;
m missing
""".replace("SAY", SHELL_FUNCTIONS).replace("LIMIT", str(MAX_FILE_BYTES + 1))
"""Sends the first of several paths that is a regular file. One line, without single quotes and exclamation marks."""

_REASONS = {
    "missing": "no such file on {host}",
    "denied": "no permission to read it on {host}",
    "special": "not a regular file on {host}",
}


class ProgramFileReader:
    """Read one file by the name that a frame recorded. `read` blocks: call it on a thread; `cancel` ends it.

    `trace_file`: the trace as the user named it; from `host:path` the file is read on that host first, then here.
    """

    def __init__(self, file: str, trace_file: str, cwd: Path) -> None:
        self._file, self._trace_file, self._cwd = file, trace_file, cwd
        try:
            remote = parse_ssh_path(trace_file)
        except TraceError:
            remote = None
        self._ssh = None if remote is None else SshProgramFileReader(file, remote)

    def read(self) -> ProgramFile:
        """Read the file. Raises TraceError (one line) if it is not readable."""
        if self._ssh is None:
            return read_local_program_file(self._file, "" if is_url(self._trace_file) else self._trace_file, self._cwd)
        try:
            return self._ssh.read()
        except TraceError as error:
            try:
                return read_local_program_file(self._file, "", self._cwd)
            except TraceError:
                raise error from None

    def cancel(self) -> None:
        """End the connection, if there is one; `read` then raises TraceError."""
        if self._ssh is not None:
            self._ssh.cancel()


class SshProgramFileReader:
    """Read one file through ssh. `read` blocks: call it on a thread; `cancel` ends it from another."""

    def __init__(self, file: str, trace: SshPath) -> None:
        self._file, self._trace = file, trace
        self._stream: SshStream | None = None
        self._cancelled = False

    def read(self) -> ProgramFile:
        """Read the file. Raises TraceError (one line) if the host has none, or cannot be reached."""
        paths = list_remote_candidates(self._file, self._trace)
        if not paths:
            raise TraceError(f"{clean(self._file)}: no path on {self._trace.host_name}")
        stream = self._stream = SshStream(_SCRIPT, paths)
        try:
            if self._cancelled:  # before there was a stream to stop
                raise TraceError(f"{clean(self._file)}: cancelled")
            kind, *fields = stream.read_header().split(" ")
            if kind != "file":
                reason = _REASONS.get(kind, "unexpected answer from {host}")
                raise TraceError(f"{clean(self._file)}: {reason.format(host=self._trace.host_name)}")
            index = int(fields[0]) if len(fields) == 1 and re.fullmatch("[0-9]{1,3}", fields[0]) else len(paths)
            if index >= len(paths):
                raise TraceError(f"{clean(self._file)}: unexpected answer from {self._trace.host_name}")
            path = paths[index]
            data = b""
            while len(data) <= MAX_FILE_BYTES and (part := stream.read(1 << 16)):
                data += part
        except ConnectionLostError as error:
            raise TraceError(f"{clean(self._file)}: {error}") from error
        finally:
            stream.close()
        return ProgramFile(path.spec, decode_program_text(data, path.spec))

    def cancel(self) -> None:
        """End the connection, if there is one; `read` then raises TraceError."""
        self._cancelled = True
        if self._stream is not None:
            self._stream.stop()


def list_remote_candidates(file: str, trace: SshPath) -> Sequence[SshPath]:
    """List the paths on the trace's host that a recorded file may have, best first.

    An absolute path is the only one; a relative one may be below the trace's folder, its parents, or the home folder.
    """
    if "\0" in file or "\n" in file or file.startswith("<"):
        return []
    if is_absolute(file):
        paths = [file]
    else:
        folder = PurePosixPath(trace.path or ".").parent
        folders = dict.fromkeys([folder, *list(folder.parents)[:MAX_PARENTS], PurePosixPath(".")])
        paths = [str(each / file) for each in folders]
        paths = [f"./{path}" if file.startswith("~") and path == file else path for path in paths]  # no home folder
    return [replace(trace, path=path, spec=trace.spec_for_path(path)) for path in paths]
