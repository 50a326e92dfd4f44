"""Take the stacks of the ranks that run now on some hosts, over one ssh connection for each.

A rank is a Python process with RANK in its environment, or with the number of Slurm or MPI and torch in its memory.
What it has forked, such as the workers of a loader, has the same numbers and is left out. py-spy reads its stacks where
it is installed: on the PATH of the job, beside its Python, or on the PATH of ssh. It does not pause the process, and
fails where frames change meanwhile, hence several tries. Else SIGUSR1 asks faulthandler, but only of a process that
handles the signal and has the file of `run --watch-hang` open: any other process would end.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator, Sequence

from torchprof_hang.analysis.evidence import Evidence, gather_evidence
from torchprof_tui.commands.common.errors import UsageError
from torchprof_tui.trace.core.errors import TraceError
from torchprof_tui.trace.sources.ssh_stream import SHELL_FUNCTIONS, SshStream
from torchprof_tui.trace.specs.address import parse_ssh_path

LOCAL = ("localhost", "127.0.0.1")
MAX_BYTES = 64 << 20
LIMIT_SECONDS = 120
LAUNCHERS = "torchrun|torch[.]distributed[.](run|launch)|accelerate|deepspeed"
"""Words of commands that start ranks; in a container they may have the number of their node in RANK."""

NO_STACK = "no stack: "  # begins what is printed in the place of a stack: the reason

_SCRIPT = (
    r"""
SAY
m live;
r() { tr "\000" "\n" < /proc/$1/environ 2>/dev/null | sed -n "s/^$2=//p" | head -n 1; };
y() {
  a=$(tr "\000" "\n" < /proc/$1/cmdline | head -n 1);
  case $a in /*) a=${a%/*} ;; */*) a=/proc/$1/cwd/${a%/*} ;; *) a= ;; esac;
  b=$PATH; [ -O /proc/$1 ] && b=$(r $1 PATH):$a:$b;
  (PATH=$b; command -v py-spy);
};
c() { tr "\000" " " < /proc/$1/cmdline 2>/dev/null; };
w() {
  k=$(r $1 RANK); [ -n "$k" ] && return;
  for v in SLURM_PROCID OMPI_COMM_WORLD_RANK PMI_RANK; do
    k=$(r $1 $v); [ -n "$k" ] && grep -q libtorch /proc/$1/maps 2>/dev/null && return;
  done; k=;
};
for d in /proc/[0-9]*; do
  p=${d#/proc/}; w $p; [ -n "$k" ] || continue; n=$k;
  case $(c $p) in *python*) ;; *) continue ;; esac;
  tr "\000" "\n" < $d/cmdline | sed -n "2,4s,.*/,,p;2,4p" | grep -qxE "LAUNCHERS" && continue;
  q=$(sed -n "s/^PPid:[[:space:]]*//p" $d/status 2>/dev/null); w $q;
  case $(c $q) in *python*) [ "$k $(r $q LOCAL_RANK)" = "$n $(r $p LOCAL_RANK)" ] && continue ;; esac; k=$n;
  printf "\n=== torchprof rank %s pid %s\n" "$k" "$p";
  y=$(y $p); o=; e="py-spy is not installed";
  for i in 1 2 3 4 5; do
    [ -n "$y" ] && o=$("$y" dump --nonblocking --pid $p 2>/dev/null) && break;
    o=; [ -n "$y" ] && sleep 0.2;
  done;
  if [ -n "$o" ]; then printf "%s\n" "$o"; continue; fi;
  [ -n "$y" ] && e="py-spy: $("$y" dump --nonblocking --pid $p 2>&1 >/dev/null | head -n 1)";
  f=$(ls -l $d/fd 2>/dev/null | sed -n "s/.* -> \(.*faulthandler_rank_[0-9]*\.txt\)$/\1/p" | head -n 1);
  case $(sed -n "s/^SigCgt:[[:space:]]*//p" $d/status) in *[2367abef]??) ;; *) f= ;; esac;
  if [ -n "$f" ]; then
    n=$(wc -c < "$f"); kill -USR1 $p; sleep 0.5; tail -c +$((n + 1)) "$f";
  else printf "NO_STACK%s; run --watch-hang did not start it\n" "$e"; fi;
done;
""".replace("SAY", SHELL_FUNCTIONS)
    .replace("NO_STACK", NO_STACK)
    .replace("LAUNCHERS", LAUNCHERS)
)
"""Sent as one line, as those of the listings: no single quotes and no exclamation marks. A program on the PATH of
another user's job is never run."""

_HEAD = re.compile(r"^=== torchprof rank (\d{1,6}) pid (\d+)$", re.MULTILINE)


def collect_stacks(hosts: Sequence[str]) -> Evidence:
    """Collect the stacks of the ranks on some hosts. Raises UsageError where none runs there."""
    lost: list[tuple[str, str]] = []
    files: list[tuple[str, bytes]] = []
    for host in dict.fromkeys(hosts):
        try:
            found = list(split_ranks(host, _ask_host(host)))
        except (TraceError, OSError, subprocess.SubprocessError) as error:
            lost.append((host, " ".join(str(error).split()).removeprefix(f"{host}: ")))
            continue
        files += [each for each in found if not each[1].lstrip().startswith(NO_STACK.encode())]
        lost += [(name, data.decode().strip()) for name, data in found if data.lstrip().startswith(NO_STACK.encode())]
        if not found:
            lost.append(
                (host, "no process there has RANK in its environment (torchrun sets it), or the number of Slurm or MPI")
            )
    evidence = gather_evidence(files)
    evidence.lost[:0] = lost
    if not evidence.used:
        raise UsageError("; ".join(f"{source}: {reason}" for source, reason in evidence.lost[:3]))
    return evidence


def split_ranks(host: str, text: str) -> Iterator[tuple[str, bytes]]:
    """Split the answer of a host into one file for each rank, named by it."""
    heads = list(_HEAD.finditer(text))
    ends = [*(head.start() for head in heads), len(text)]
    for head, end in zip(heads, ends[1:], strict=True):
        body = text[head.end() : end]
        yield f"{host}:pid{head[2]}_rank{head[1]}.txt", body.encode()


def _ask_host(host: str) -> str:
    if host in LOCAL:
        line = " ".join(_SCRIPT.split("\n"))
        done = subprocess.run(["sh", "-c", line], capture_output=True, timeout=LIMIT_SECONDS, check=False)
        return done.stdout[:MAX_BYTES].decode("utf-8", "replace")
    path = parse_ssh_path(f"{host}:.")
    if path is None:
        raise TraceError(f"{host}: not the name of a host")
    stream = SshStream(_SCRIPT, [path])
    try:
        stream.read_header()
        parts: list[bytes] = []
        while sum(map(len, parts)) < MAX_BYTES and (part := stream.read(1 << 16)):
            parts.append(part)
        return b"".join(parts).decode("utf-8", "replace")
    finally:
        stream.close()
