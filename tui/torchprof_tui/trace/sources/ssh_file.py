"""Read a trace from another host through the user's OpenSSH client, with its configuration, agent and jump hosts.

One connection runs a short POSIX shell script, which reports the type of the path and then sends the file: unchanged if
it is compressed, else through zstd or gzip. Nothing is installed or written on the host.
"""

from __future__ import annotations

import contextlib
import re

from torchprof_tui.trace.core.errors import ConnectionLostError, TraceError
from torchprof_tui.trace.sources.source import Source
from torchprof_tui.trace.sources.ssh_listing import identity_of
from torchprof_tui.trace.sources.ssh_stream import FIND_TRACES, SHELL_FUNCTIONS, SshStream
from torchprof_tui.trace.specs.address import TRACE_SUFFIXES, ListedTrace, SshPath, is_key_averages_file
from torchprof_tui.trace.specs.folder_error import FolderError

_MIN_COMPRESSED_BYTES = 1 << 18
"""Plain files below this size are sent uncompressed: starting a compressor would take longer.

338 MB of plain trace over loopback: uncompressed 3.0 s, through `zstd -1` 1.3 s (23 MB), through `gzip -1` 3.6 s
(33 MB), with `ssh -C` 7.5 s. So compression costs little even on the fastest link, and -C is never the best.
"""

_MAX_LISTED = 2000
"""Traces of a folder that are listed and returned, at most."""

_STAT_LINE = re.compile(rf"(\d+):(\d+):\./(.+(?:{'|'.join(map(re.escape, TRACE_SUFFIXES))}))")

_SCRIPT = (
    r"""
export LC_ALL=C; p=$1;
SAY
if [ -d "$p" ]; then
  CDPATH= cd -- "$p" 2>/dev/null || { m denied; exit 0; };
  m folder;
  if stat -c %s . >/dev/null 2>&1; then f="-c %s:%Y:%n"; else f="-f %z:%m:%N"; fi;
  find -L . -maxdepth 2 -type f "(" FIND_TRACES ")"
    -exec stat -L $f "{}" + 2>/dev/null | head -n LISTED;
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
  n "$p";
fi
""".replace("PACK_BYTES", str(_MIN_COMPRESSED_BYTES))
    .replace("LISTED", str(_MAX_LISTED))
    .replace("SAY", SHELL_FUNCTIONS)
    .replace("FIND_TRACES", FIND_TRACES)
)
"""Sent as one line. Contains no single quotes and no exclamation marks, which some login shells interpret."""


def open_ssh_file(path: SshPath) -> Source:
    """Open a file on an ssh host.

    Raises TraceError (one line) if it cannot be read; FolderError with the traces in it if it is a folder.
    """
    stream = SshStream(_SCRIPT, [path])
    try:
        kind, *fields = stream.read_header().split(" ")
        if kind == "folder":
            raise _read_folder_error(path, stream)
        if kind != "file":
            reasons = {"missing": "no such file there", "denied": "no permission to read it there"}
            raise TraceError(f"{path.spec}: {reasons.get(kind, 'the host gave an answer that makes no sense')}")
        sender, *stat_fields = fields
        size = int(stat_fields[0]) if stat_fields and stat_fields[0].isdigit() else None
        if size == 0:
            raise TraceError(f"{path.spec}: the file is empty")
        return Source(
            path.spec,
            stream,
            size,
            compressed_in_transit=sender != "cat",
            identity=identity_of(path, stat_fields),
            stop=stream.stop,
        )
    except BaseException:
        stream.close()
        raise


def _read_folder_error(folder: SshPath, stream: SshStream) -> FolderError:
    """Parse the output of `find` and `stat` for a folder, newest first. Skips names that contain a line break."""
    text = b""
    with contextlib.suppress(ConnectionLostError):
        while part := stream.read(1 << 16):
            text += part
    traces = []
    for line in text.decode(errors="surrogateescape").split("\n"):
        match = _STAT_LINE.fullmatch(line)
        if match and not is_key_averages_file(match[3]):
            traces.append(ListedTrace(folder.child_spec(match[3]), int(match[1]), float(match[2])))
    traces.sort(key=lambda trace: (-trace.modified, trace.spec))
    return FolderError(folder.spec, traces[:_MAX_LISTED])
