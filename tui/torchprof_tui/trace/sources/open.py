"""Open what the user named: a local file, standard input, a file on another host or a URL."""

from __future__ import annotations

import errno
import os
import stat
import sys
from pathlib import Path

from torchprof_tui.trace.core.errors import TraceError
from torchprof_tui.trace.sources.source import Source
from torchprof_tui.trace.specs.address import TRACE_SUFFIXES, is_key_averages_file, is_url, parse_ssh_path


def open_source(spec: str, allow_prompt: bool = False) -> Source:
    """The file of that name, here or elsewhere; stdin for `-`. `ask`: ssh may ask for a password on the terminal.

    Raises TraceError where there is nothing to read.
    """
    if spec == "-":
        if sys.stdin.isatty():
            raise TraceError("-: stdin is the terminal; pipe a trace into it")
        return Source("stdin", sys.stdin.buffer)
    try:
        there = parse_ssh_path(spec)
    except ValueError as error:
        raise TraceError(str(error)) from error
    if there is not None:
        from torchprof_tui.trace.sources.ssh_file import open_ssh_file

        return open_ssh_file(there, allow_prompt)
    if is_url(spec):
        from torchprof_tui.trace.sources.url import open_url

        return open_url(spec)
    path = Path(spec).expanduser()
    try:
        found = path.stat()
        if stat.S_ISDIR(found.st_mode):
            raise TraceError(_describe_folder(spec, path))
        stream = path.open("rb", buffering=0)
    except OSError as error:
        raise TraceError(f"{spec}: {_ERRNO_MESSAGES.get(error.errno or 0, error.strerror or str(error))}") from error
    except ValueError as error:
        if isinstance(error, TraceError):
            raise
        raise TraceError(f"{spec!r}: no such file") from error  # a name with a NUL in it
    regular = stat.S_ISREG(found.st_mode)
    if regular and found.st_size == 0:
        stream.close()
        raise TraceError(f"{spec}: the file is empty")
    return Source(spec, stream, found.st_size if regular else None, path.absolute() if regular else None)


_ERRNO_MESSAGES = {
    errno.ENOENT: "no such file",
    errno.ENOTDIR: "no such file",
    errno.ENAMETOOLONG: "no such file",
    errno.EACCES: "no permission to read it",
    errno.EPERM: "no permission to read it",
}


def _describe_folder(spec: str, path: Path) -> str:
    """A folder is no trace: name a file that lies in it, where there is one."""
    try:
        inside = sorted(
            name for name in os.listdir(path) if name.endswith(TRACE_SUFFIXES) and not is_key_averages_file(name)
        )
    except OSError:
        inside = []
    if not inside:
        return f"{spec}: a folder, with no .json or .json.gz file in it; name a trace file"
    return f"{spec}: a folder; name a file in it, such as {os.path.join(spec, inside[0])}"
