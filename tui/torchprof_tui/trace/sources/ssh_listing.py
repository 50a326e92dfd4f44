"""What several paths on one host are, told over one connection before any of them is fetched: files with their size
and identity, the traces in a folder, those that a pattern matches.

So the ranks of a run that were opened before are found in the cache without a connection each, and what is not there
is known at once. Patterns are expanded by the shell over there, from the text that the user gave and nothing else.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from torchprof_tui.trace.core.errors import ConnectionLostError, TraceError
from torchprof_tui.trace.sources.ssh_process import FIND_TRACES, LINE_MARK, SHELL_FUNCTIONS, SshStream, read_ssh_config
from torchprof_tui.trace.specs.address import ListedTrace, SshPath, is_key_averages_file, parse_ssh_path

_MAX_PATHS_PER_COMMAND = 200
"""A command line holds 128 KB on Linux; more paths than this take further connections, one after the other."""

_STAT_LINE = re.compile(r"(\d+) (\d+) (\S+(?: \S+ \S+)?) (\d+) (\.?/.*)")
"""Size, seconds, the time in full (three words where stat is GNU's), inode, name."""

_NAME_ONLY_LINE = re.compile(r"- (\.?/.*)")
"""Where there is no stat."""

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
"""As all that is sent: without single quotes and exclamation marks, and as one line."""

_FAILURE_REASONS = {
    "missing": "no such file there",
    "denied": "no permission to read it there",
    "unmatched": "nothing there matches",
}


class HostListing:
    """What was found on one host. `found`: by path as asked, the traces, or the line that says why there are none.

    `held`: a connection that the ones to come go through, because the user's configuration shares it; None where it
    does not. Close it when they are over.
    """

    def __init__(self, answers: list[list[ListedTrace] | str], shared_connection: SshStream | None) -> None:
        self.answers = answers
        self.shared_connection = shared_connection


def list_host_paths(targets: Sequence[SshPath], allow_prompt: bool) -> HostListing:
    """Ask one host about paths on it. Raises TraceError where it cannot be asked."""
    shared = read_ssh_config(targets[0]).shares_connection
    found: list[list[ListedTrace] | str] = []
    held: SshStream | None = None
    for begin in range(0, len(targets), _MAX_PATHS_PER_COMMAND):
        some = targets[begin : begin + _MAX_PATHS_PER_COMMAND]
        hold = shared and held is None
        # Whoever holds it goes on until we let go, or are no more: it waits for the end of what we might say.
        stream = SshStream(
            _SCRIPT.replace("HOLD", "exec cat >/dev/null" if hold else ""), some, allow_prompt, keep_open=hold
        )
        try:
            found += _read_answers(stream, some)
        except BaseException:
            stream.close()
            if held is not None:
                held.close()
            raise
        if hold:
            held = stream
        else:
            stream.close()
    return HostListing(found, held)


def _read_answers(stream: SshStream, there: Sequence[SshPath]) -> list[list[ListedTrace] | str]:
    end = LINE_MARK + b"end\n"
    text = LINE_MARK + stream.read_header().encode() + b"\n"
    while not text.endswith(end):
        try:
            part = stream.read(1 << 16)
        except ConnectionLostError as error:
            raise TraceError(f"{there[0].spec}: {error}") from error
        if not part:
            raise TraceError(f"{there[0].spec}: {there[0].host_name} stopped in the middle of its answer")
        text += part
    answers = text.removesuffix(end).decode(errors="surrogateescape").split(LINE_MARK.decode())[1:]
    if len(answers) != len(there):
        raise TraceError(f"{there[0].spec}: {there[0].host_name} gave an answer that makes no sense")
    return [_parse_answer(each, answer) for each, answer in zip(there, answers, strict=True)]


def _parse_answer(asked: SshPath, answer: str) -> list[ListedTrace] | str:
    """The traces of one path, or why there are none. Names that hold a line break are left out of patterns."""
    kind, *lines = answer.split("\n")
    if kind in _FAILURE_REASONS:
        return f"{asked.spec}: {_FAILURE_REASONS[kind]}"
    found = []
    for line in lines:
        entry = _STAT_LINE.fullmatch(line)
        nameless = _NAME_ONLY_LINE.fullmatch(line) if entry is None else None
        path = entry[5] if entry else nameless[1] if nameless else None
        if kind != "file" and (path is None or (kind == "folder" and is_key_averages_file(path))):
            continue
        spec = asked.spec if kind == "file" or path is None else asked.spec_for_path(path)
        if entry is None:
            found.append(ListedTrace(spec, None, 0.0))
            continue
        known = [entry[1], entry[2], *entry[3].split(" "), entry[4]]
        found.append(ListedTrace(spec, int(entry[1]), float(entry[2]), _spec_identity(spec, known)))
    if kind == "file":
        # Its name may hold what does not fit a line; it is the only one there.
        return found[:1] or [ListedTrace(asked.spec, None, 0.0)]
    found.sort(key=lambda each: each.spec)
    if not found:
        return f"{asked.spec}: {'a folder, with no .json or .json.gz file in it' if kind == 'folder' else 'no file'}"
    return found


def _spec_identity(spec: str, known: Sequence[str]) -> str | None:
    there = parse_ssh_path(spec)
    return None if there is None else identity_of(there, known)


def identity_of(path: SshPath, stat_fields: Sequence[str]) -> str | None:
    """What tells this content from any other: `known` are size, seconds, the time in full, inode; None for less."""
    if len(stat_fields) < 3:  # the size alone tells too little
        return None
    return "\0".join(("ssh", path.host, str(path.port or ""), path.path, *stat_fields))
