"""Open a trace source by name: a local file, standard input, an ssh path or a URL."""

from __future__ import annotations

import errno
import os
import stat
import sys
from pathlib import Path

from torchprof_tui.trace.core.errors import TraceError
from torchprof_tui.trace.sources.source import Source
from torchprof_tui.trace.specs.address import TRACE_SUFFIXES, is_key_averages_file, is_url, parse_ssh_path


def open_source(spec: str) -> Source:
    """Open a local or remote file; stdin for `-`.

    Raises TraceError if it cannot be opened.
    """
    if spec == "-":
        if sys.stdin.isatty():
            raise TraceError("-: stdin is the terminal; pipe a trace into it")
        return Source("stdin", sys.stdin.buffer)
    ssh_path = parse_ssh_path(spec)
    if ssh_path is not None:
        from torchprof_tui.trace.sources.ssh_file import open_ssh_file  # deferred: only needed for ssh

        return open_ssh_file(ssh_path)
    if is_url(spec):
        from torchprof_tui.trace.sources.url import open_url  # deferred: only needed for URLs

        return open_url(spec)
    path = Path(os.path.expanduser(spec))  # unlike Path.expanduser, leaves an unknown home folder as it is
    try:
        status = path.stat()
        if stat.S_ISDIR(status.st_mode):
            raise TraceError(_describe_folder(spec, path))
        stream = path.open("rb", buffering=0)
    except OSError as error:
        raise TraceError(f"{spec}: {_ERRNO_MESSAGES.get(error.errno or 0, error.strerror or str(error))}") from error
    except ValueError as error:
        if isinstance(error, TraceError):
            raise
        raise TraceError(f"{spec!r}: no such file") from error  # the name contains NUL
    regular = stat.S_ISREG(status.st_mode)
    if regular and status.st_size == 0:
        stream.close()
        raise TraceError(f"{spec}: the file is empty")
    return Source(spec, stream, status.st_size if regular else None, path.absolute() if regular else None)


_ERRNO_MESSAGES = {
    errno.ENOENT: "no such file",
    errno.ENOTDIR: "no such file",
    errno.ENAMETOOLONG: "no such file",
    errno.EACCES: "no permission to read it",
    errno.EPERM: "no permission to read it",
}


def _describe_folder(spec: str, path: Path) -> str:
    """Return a message for a folder, with the name of a trace in it as an example."""
    try:
        names = sorted(
            name for name in os.listdir(path) if name.endswith(TRACE_SUFFIXES) and not is_key_averages_file(name)
        )
    except OSError:
        names = []
    if not names:
        return f"{spec}: a folder, with no .json or .json.gz file in it; name a trace file"
    return f"{spec}: a folder; name a file in it, such as {os.path.join(spec, names[0])}"
