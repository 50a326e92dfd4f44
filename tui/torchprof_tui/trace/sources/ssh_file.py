"""Read a trace from another host through the user's OpenSSH client, with its configuration, agent and jump hosts.

One connection runs a short POSIX shell script, which reports the type of the path and then sends the file: unchanged if
it is compressed, else through zstd or gzip. Nothing is installed or written on the host.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Sequence

from torchprof_tui.trace.core.errors import ConnectionLostError, TraceError
from torchprof_tui.trace.sources.listing import (
    MAX_LISTED,
    MAX_NAME_BYTES,
    checked_modified,
    checked_size,
    is_usable_name,
    select_newest,
)
from torchprof_tui.trace.sources.source import Source
from torchprof_tui.trace.sources.ssh_command import read_ssh_config, shared_socket
from torchprof_tui.trace.sources.ssh_stream import FIND_TRACES, LINE_MARK, SHELL_FUNCTIONS, SshStream
from torchprof_tui.trace.specs.address import TRACE_SUFFIXES, ListedTrace, SshPath, is_key_averages_file, parse_ssh_path
from torchprof_tui.trace.specs.runs_by_name import FolderError

_MAX_PATHS_PER_COMMAND = 200
"""Paths per connection: an argument of a command holds 128 KB on Linux. More paths take further connections in turn."""

_LISTED_LINE = re.compile(r"([0-9]{1,19}) (-?[0-9]{1,12}) (\S{1,40}(?: \S{1,40} \S{1,9})?) ([0-9]{1,20}) (\.?/.*)")
"""Size, mtime in seconds, mtime in full (three words from GNU stat), inode, path."""

_GLOB_MAGIC = re.compile(r"[*?\[]")

_NAME_ONLY_LINE = re.compile(r"- (\.?/.*)")  # output on hosts without `stat`

_LISTING_SCRIPT = r"""
export LC_ALL=C;
SAY
l=$(printf "\n-"); l=${l%-};
s() {
  if [ $f = - ]; then find -L "$@" -not -path "*$l*" -print 2>/dev/null | sed "s/^/- /";
  else find -L "$@" -exec stat -L $f "$g" "{}" + 2>/dev/null; fi;
};
if stat -c %s . >/dev/null 2>&1; then f=-c; g="%s %Y %y %i %n";
elif stat -f %z . >/dev/null 2>&1; then f=-f; g="%z %m %Fm %i %N";
else f=-; fi;
for p do
  if [ -d "$p" ]; then
    if [ -x "$p" ] && [ -r "$p" ]; then
      m folder;
      s "$p" -maxdepth 1 -type f -not -path "*$l*"
        "(" FIND_TRACES ")";
    else m denied; fi;
  elif [ -r "$p" ]; then m file; s "$p" -maxdepth 0;
  else
    case $p in
      *[*?[]*)
        IFS=; set -- $p; unset IFS;
        if [ -e "$1" ]; then m pattern; s "$@" -maxdepth 0 -type f -not -path "*$l*";
        else
          d=${p%/*};
          case $d in
            *[*?[]*) m unmatched ;;
            *) if [ -d "$d/" ] && [ -r "$d/" ]; then m unmatched; else n "$d/"; fi ;;
          esac;
        fi ;;
      *) n "$p" ;;
    esac;
  fi;
done;
m end;
HOLD
""".replace("SAY", SHELL_FUNCTIONS).replace("FIND_TRACES", FIND_TRACES)
"""Sent as one line. Contains no single quotes and no exclamation marks, which some login shells interpret."""

_FAILURE_REASONS = {
    "missing": "no such file there",
    "denied": "no permission to read it there",
    "unmatched": "no match there",
}


def list_host_paths(targets: Sequence[SshPath]) -> tuple[list[list[ListedTrace] | str], SshStream | None]:
    """List paths on one host. Raises TraceError if the host cannot be queried.

    Returns for each path its traces, or one line on why there are none; and the open connection that later ones use, if
    the user's configuration shares connections: close it when those have ended.
    """
    shared = shared_socket(targets[0]) is None and read_ssh_config(targets[0]).shares_connection
    answers: list[list[ListedTrace] | str] = []
    shared_connection: SshStream | None = None
    for begin in range(0, len(targets), _MAX_PATHS_PER_COMMAND):
        batch = targets[begin : begin + _MAX_PATHS_PER_COMMAND]
        keep_open = shared and shared_connection is None
        # `cat` keeps the connection open until stdin ends, which also happens when this process dies.
        script = _LISTING_SCRIPT.replace("HOLD", "exec cat >/dev/null" if keep_open else "")
        stream = SshStream(script, batch, keep_open=keep_open)
        try:
            answers += _read_answers(stream, batch)
        except BaseException:
            stream.close()
            if shared_connection is not None:
                shared_connection.close()
            raise
        if keep_open:
            shared_connection = stream
        else:
            stream.close()
    return answers, shared_connection


def _read_answers(stream: SshStream, targets: Sequence[SshPath]) -> list[list[ListedTrace] | str]:
    end = LINE_MARK + b"end\n"
    text = LINE_MARK + stream.read_header().encode() + b"\n"
    try:
        text += stream.read_listing(end)
    except ConnectionLostError as error:
        raise TraceError(f"{targets[0].spec}: {error}") from error
    if not text.endswith(end):
        raise TraceError(f"{targets[0].spec}: {targets[0].host_name} sent only a part of its answer")
    answers = text.removesuffix(end).decode(errors="surrogateescape").split(LINE_MARK.decode())[1:]
    if len(answers) != len(targets):
        raise TraceError(f"{targets[0].spec}: unexpected answer from {targets[0].host_name}")
    return [_parse_answer(target, answer) for target, answer in zip(targets, answers, strict=True)]


def _parse_answer(target: SshPath, answer: str) -> list[ListedTrace] | str:
    """Return the traces of one path, or the reason that there are none. Skips matches that contain a line break."""
    kind, *lines = answer.split("\n")
    if kind in _FAILURE_REASONS:
        return f"{target.spec}: {_FAILURE_REASONS[kind]}"
    traces = []
    for line in lines:
        status = _LISTED_LINE.fullmatch(line)
        name_only = _NAME_ONLY_LINE.fullmatch(line) if status is None else None
        path = status[5] if status else name_only[1] if name_only else None
        spec = target.spec
        if kind != "file":
            is_table = kind == "folder" and path is not None and is_key_averages_file(path)
            if path is None or is_table or not _is_listed_by(target, kind, path):
                continue
            spec = target.spec_for_path(path)
        if status is None:
            traces.append(ListedTrace(spec, None, 0.0))
            continue
        stat_fields = [status[1], status[2], *status[3].split(" "), status[4]]
        size, modified = checked_size(int(status[1])), checked_modified(float(status[2]))
        ssh_path = parse_ssh_path(spec)
        identity = None if ssh_path is None else identity_of(ssh_path, stat_fields)
        traces.append(ListedTrace(spec, size, modified, identity))
    if kind == "file":
        # The name of a single file may contain a line break.
        return traces[:1] or [ListedTrace(target.spec, None, 0.0)]
    traces.sort(key=lambda trace: trace.spec)
    if not traces:
        return f"{target.spec}: {'a folder, with no .json or .json.gz file in it' if kind == 'folder' else 'no file'}"
    return traces


def _is_listed_by(target: SshPath, kind: str, path: str) -> bool:
    """Tell whether a path may answer for a name: directly in the folder, or as deep as the pattern."""
    asked = [part for part in target.path.split("/") if part not in ("", ".", "~")]
    given = [part for part in path.split("/") if part not in ("", ".")]
    name = given[-1] if given else ""
    if name == ".." or len(path) > MAX_NAME_BYTES or not is_usable_name(name):
        return False
    if target.path.startswith("~") and asked and asked[0].startswith("~"):
        return True  # only the host knows where that user's home folder is
    if kind == "folder":
        return given[:-1] == asked
    same = (mine == theirs or _GLOB_MAGIC.search(mine) for mine, theirs in zip(asked, given, strict=False))
    return len(given) == len(asked) and all(same) and given.count("..") == asked.count("..")


def identity_of(path: SshPath, stat_fields: Sequence[str]) -> str | None:
    """Identify a file by size, mtime in seconds, mtime in full and inode; None if `stat_fields` has fewer."""
    if len(stat_fields) < 3:  # the size alone does not identify a file
        return None
    return "\0".join(("ssh", path.host, str(path.port or ""), path.path, *stat_fields))


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
            from_offset = _SCRIPT.replace(") exec ", f') tail -c +{offset + 1} <"$p" | ')
            answer = stream.restart(from_offset.replace(' <"$p" ;;', " ;;"))
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
