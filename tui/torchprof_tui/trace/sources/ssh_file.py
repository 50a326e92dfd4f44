"""Read a trace from another host through the user's OpenSSH client, with its configuration, agent and jump hosts.

One connection runs a short POSIX shell script, which reports the type of the path and then sends the file: unchanged if
it is compressed, else through zstd or gzip. Nothing is installed or written on the host.
"""

from __future__ import annotations

import contextlib
import re

from torchprof_tui.trace.core.errors import ConnectionLostError, TraceError
from torchprof_tui.trace.sources.listing_limits import (
    MAX_LISTED,
    checked_modified,
    checked_size,
    is_usable_name,
    select_newest,
)
from torchprof_tui.trace.sources.source import Source
from torchprof_tui.trace.sources.ssh_listing import identity_of
from torchprof_tui.trace.sources.ssh_stream import FIND_TRACES, SHELL_FUNCTIONS, SshStream
from torchprof_tui.trace.specs.address import TRACE_SUFFIXES, ListedTrace, SshPath, is_key_averages_file
from torchprof_tui.trace.specs.runs_by_name import FolderError

_MIN_COMPRESSED_BYTES = 1 << 18
"""Plain files below this size are sent uncompressed: starting a compressor would take longer.

338 MB of plain trace over loopback: uncompressed 3.0 s, through `zstd -1` 1.3 s (23 MB), through `gzip -1` 3.6 s
(33 MB), with `ssh -C` 7.5 s. So compression costs little even on the fastest link, and -C is never the best.
"""

_STAT_LINE = re.compile(rf"([0-9]{{1,19}}):(-?[0-9]{{1,12}}):\./(.+(?:{'|'.join(map(re.escape, TRACE_SUFFIXES))}))")
"""Size, mtime in seconds, path below the folder."""

_SIZE = re.compile(r"[0-9]{1,19}")

_SCRIPT = (
    r"""
export LC_ALL=C; p=$1;
SAY
if [ -d "$p" ]; then
  CDPATH= cd -- "$p" 2>/dev/null || { m denied; exit 0; };
  m folder;
  if stat -c %s . >/dev/null 2>&1; then f="-c %s:%Y:%n"; else f="-f %z:%m:%N"; fi;
  if command -v sort >/dev/null 2>&1; then o="sort -t : -k 2,2nr"; else o=cat; fi;
  find -L . -maxdepth 2 -type f "(" FIND_TRACES ")"
    -exec stat -L $f "{}" + 2>/dev/null | $o | head -n LISTED;
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
    .replace("LISTED", str(MAX_LISTED + 1))
    .replace("SAY", SHELL_FUNCTIONS)
    .replace("FIND_TRACES", FIND_TRACES)
)
"""Sent as one line. Contains no single quotes and no exclamation marks, which some login shells interpret."""


def _script_from(offset: int) -> str:
    """Return the script that sends the file from this byte on."""
    script = _SCRIPT.replace(") exec ", f') tail -c +{offset + 1} <"$p" | ')
    return script.replace(' <"$p" ;;', " ;;")


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
            raise TraceError(f"{path.spec}: {reasons.get(kind, f'unexpected answer from {path.host_name}')}")
        sender, *stat_fields = fields or ["cat"]
        size = checked_size(int(stat_fields[0])) if stat_fields and _SIZE.fullmatch(stat_fields[0]) else None
        if size == 0:
            raise TraceError(f"{path.spec}: the file is empty")
        identity = identity_of(path, stat_fields)

        def resume(offset: int) -> None:
            """Send the rest of the file over another connection, packed as before. Raises ConnectionLostError."""
            answer = stream.restart(_script_from(offset))
            if answer.split(" ") != ["file", *fields]:
                raise ConnectionLostError("the rest of the file was not taken: it has changed since")

        return Source(
            path.spec,
            stream,
            size,
            compressed_in_transit=sender != "cat",
            identity=identity,
            stop=stream.stop,
            host=path.host_name,
            resume=None if identity is None else resume,
        )
    except BaseException:
        stream.close()
        raise


def _read_folder_error(folder: SshPath, stream: SshStream) -> FolderError:
    """Parse the output of `find` and `stat` for a folder, newest first. Skips names that contain a line break."""
    text = b""
    with contextlib.suppress(ConnectionLostError):
        text = stream.read_listing()
    traces = []
    for line in text.decode(errors="surrogateescape").split("\n"):
        match = _STAT_LINE.fullmatch(line)
        if match and is_usable_name(match[3]) and match[3].count("/") <= 1 and not is_key_averages_file(match[3]):
            spec = folder.child_spec(match[3])
            traces.append(ListedTrace(spec, checked_size(int(match[1])), checked_modified(float(match[2]))))
    return FolderError(folder.spec, select_newest(traces), omitted=max(len(traces) - MAX_LISTED, 0))
