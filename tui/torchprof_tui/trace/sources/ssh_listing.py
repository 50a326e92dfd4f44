"""List several paths on one ssh host over one connection: files with size and identity, folders, glob patterns.

So ranks in the cache are found without a connection for each, and missing files are reported at once. The host's shell
expands the patterns as the user wrote them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from torchprof_tui.trace.core.errors import ConnectionLostError, TraceError
from torchprof_tui.trace.sources.listing_limits import MAX_NAME_BYTES, checked_modified, checked_size, is_usable_name
from torchprof_tui.trace.sources.ssh_command import read_ssh_config, shared_socket
from torchprof_tui.trace.sources.ssh_stream import FIND_TRACES, LINE_MARK, SHELL_FUNCTIONS, SshStream
from torchprof_tui.trace.specs.address import ListedTrace, SshPath, is_key_averages_file, parse_ssh_path

_MAX_PATHS_PER_COMMAND = 200
"""Paths per connection: an argument of a command holds 128 KB on Linux. More paths take further connections in turn."""

_STAT_LINE = re.compile(r"([0-9]{1,19}) (-?[0-9]{1,12}) (\S{1,40}(?: \S{1,40} \S{1,9})?) ([0-9]{1,20}) (\.?/.*)")
"""Size, mtime in seconds, mtime in full (three words from GNU stat), inode, path."""

_GLOB_MAGIC = re.compile(r"[*?\[]")

_NAME_ONLY_LINE = re.compile(r"- (\.?/.*)")
"""Output on hosts without `stat`."""

_SCRIPT = r"""
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


class HostListing:
    """Result of listing one host. `answers`: for each path its traces, or one line on why there are none.

    `shared_connection`: open connection that later ones use, if the user's configuration shares connections, else None.
    Close it when those have ended.
    """

    def __init__(self, answers: list[list[ListedTrace] | str], shared_connection: SshStream | None) -> None:
        self.answers = answers
        self.shared_connection = shared_connection


def list_host_paths(targets: Sequence[SshPath]) -> HostListing:
    """List paths on one host. Raises TraceError if the host cannot be queried."""
    shared = shared_socket(targets[0]) is None and read_ssh_config(targets[0]).shares_connection
    answers: list[list[ListedTrace] | str] = []
    shared_connection: SshStream | None = None
    for begin in range(0, len(targets), _MAX_PATHS_PER_COMMAND):
        batch = targets[begin : begin + _MAX_PATHS_PER_COMMAND]
        keep_open = shared and shared_connection is None
        # `cat` keeps the connection open until stdin ends, which also happens when this process dies.
        script = _SCRIPT.replace("HOLD", "exec cat >/dev/null" if keep_open else "")
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
    return HostListing(answers, shared_connection)


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
        status = _STAT_LINE.fullmatch(line)
        name_only = _NAME_ONLY_LINE.fullmatch(line) if status is None else None
        path = status[5] if status else name_only[1] if name_only else None
        if kind != "file" and (path is None or (kind == "folder" and is_key_averages_file(path))):
            continue
        if kind != "file" and path is not None and not _is_listed_by(target, kind, path):
            continue
        spec = target.spec if kind == "file" or path is None else target.spec_for_path(path)
        if status is None:
            traces.append(ListedTrace(spec, None, 0.0))
            continue
        stat_fields = [status[1], status[2], *status[3].split(" "), status[4]]
        size, modified = checked_size(int(status[1])), checked_modified(float(status[2]))
        traces.append(ListedTrace(spec, size, modified, _spec_identity(spec, stat_fields)))
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


def _spec_identity(spec: str, stat_fields: Sequence[str]) -> str | None:
    path = parse_ssh_path(spec)
    return None if path is None else identity_of(path, stat_fields)


def identity_of(path: SshPath, stat_fields: Sequence[str]) -> str | None:
    """Identify a file by size, mtime in seconds, mtime in full and inode; None if `stat_fields` has fewer."""
    if len(stat_fields) < 3:  # the size alone does not identify a file
        return None
    return "\0".join(("ssh", path.host, str(path.port or ""), path.path, *stat_fields))
