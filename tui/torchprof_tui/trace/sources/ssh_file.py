"""A trace on another host, through the user's own OpenSSH client: its configuration, agent, jump hosts, sockets.

One connection does it all. A few lines of POSIX shell run there, say what lies at the path, and then send it: as it
is where it is compressed already, else through zstd or gzip. Nothing is installed there, and nothing is kept there.
"""

from __future__ import annotations

import contextlib
import re

from torchprof_tui.trace.core.errors import ConnectionLostError, TraceError
from torchprof_tui.trace.sources.source import Source
from torchprof_tui.trace.sources.ssh_listing import identity_of
from torchprof_tui.trace.sources.ssh_process import FIND_TRACES, SHELL_FUNCTIONS, SshStream
from torchprof_tui.trace.specs.address import TRACE_SUFFIXES, ListedTrace, SshPath, is_key_averages_file
from torchprof_tui.trace.specs.folder_error import FolderError

_MIN_COMPRESSED_BYTES = 1 << 18
"""Smaller plain files are sent as they are: starting a compressor takes longer.

338 MB of plain trace over loopback: as they are 3.0 s, through `zstd -1` 1.3 s (23 MB), through `gzip -1` 3.6 s
(33 MB), with `ssh -C` 7.5 s: even where the line costs nothing, packing loses nothing, and -C is never the best.
"""

_MAX_LISTED = 2000
"""Traces of a folder, at most: the newest of as many as are looked at there."""

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
"""Without single quotes and exclamation marks, which some login shells read, and sent as one line."""


def open_ssh_file(path: SshPath, allow_prompt: bool = False) -> Source:
    """The file, on its way. `ask`: ssh may ask for passwords and unknown hosts on the terminal.

    Raises TraceError, one line, where nothing arrives; FolderError, with what lies in it, where it is a folder.
    """
    stream = SshStream(_SCRIPT, [path], allow_prompt)
    try:
        what, *facts = stream.read_header().split(" ")
        if what == "folder":
            raise _read_folder_error(path, stream)
        if what != "file":
            why = {"missing": "no such file there", "denied": "no permission to read it there"}
            raise TraceError(f"{path.spec}: {why.get(what, 'the host gave an answer that makes no sense')}")
        way, *known = facts
        size = int(known[0]) if known and known[0].isdigit() else None
        if size == 0:
            raise TraceError(f"{path.spec}: the file is empty")
        identity = identity_of(path, known)
        packed = way != "cat"
        return Source(path.spec, stream, size, compressed_in_transit=packed, identity=identity, stop=stream.stop)
    except BaseException:
        stream.close()
        raise


def _read_folder_error(remote: SshPath, stream: SshStream) -> FolderError:
    """What `find` and `stat` said of a folder, newest first; names that hold a line break are left out."""
    text = b""
    with contextlib.suppress(ConnectionLostError):
        while part := stream.read(1 << 16):
            text += part
    found = []
    for line in text.decode(errors="surrogateescape").split("\n"):
        entry = _STAT_LINE.fullmatch(line)
        if entry and not is_key_averages_file(entry[3]):
            found.append(ListedTrace(remote.child_spec(entry[3]), int(entry[1]), float(entry[2])))
    found.sort(key=lambda each: (-each.modified, each.spec))
    return FolderError(remote.spec, found[:_MAX_LISTED])
