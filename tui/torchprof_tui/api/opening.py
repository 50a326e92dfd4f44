"""Open a trace from Python."""

from __future__ import annotations

import os
from collections.abc import Iterable

from torchprof_tui.answers.arguments import check_flag, check_number, check_optional, reject
from torchprof_tui.api.trace import Trace, translate_errors
from torchprof_tui.trace.core.errors import TraceError
from torchprof_tui.trace.loading.load_in_process import load_resolved
from torchprof_tui.trace.loading.progress import ignore_progress
from torchprof_tui.trace.loading.resolve import resolve_specs
from torchprof_tui.trace.sources.ssh_connections import SshConnections
from torchprof_tui.trace.storage.disk_cache import prune_cache

Source = str | os.PathLike[str]


def open(source: Source | Iterable[Source], *, rank: int | None = None, cache: bool = True) -> Trace:  # noqa: A001
    """Open a trace: whatever `torchprof-tui` opens.

    `source`: a file (plain or compressed), a folder or a pattern of ranks, `sample:NAME`, `host:path`, a URL, "-" for
    stdin; or a list of files, the ranks of one run. `rank`: only this rank of a run. `cache`: use the cache of decoded
    traces. Prints nothing and asks nothing; ssh must connect without a password. Raises TraceError, with one line that
    says what is wrong.
    """
    specs = _list_specs(source)
    rank, cache = check_optional(check_number, "rank", rank), check_flag("cache", cache)
    with translate_errors(), SshConnections() as connections:
        try:
            opened = load_resolved(resolve_specs(specs), connections, ignore_progress, cache)
        except ValueError as error:  # a name with a zero byte
            raise error if isinstance(error, TraceError) else TraceError(str(error)) from error
    if cache and not opened.cached:
        prune_cache()
    trace = Trace(opened.trace, opened.cache_entry)
    return trace if rank is None else trace.select_rank(rank)


def _list_specs(source: Source | Iterable[Source]) -> list[str]:
    """List what to open as texts. Raises TraceError."""
    wanted = "give a path, a URL, host:path, sample:NAME, or a list of them"
    if isinstance(source, (str, os.PathLike)):
        sources: list[Source] = [source]
    elif isinstance(source, Iterable) and not isinstance(source, (bytes, bytearray, memoryview)):
        sources = [*source]
    else:
        raise reject("source", source, wanted)
    specs = [os.fspath(each) if isinstance(each, (str, os.PathLike)) else each for each in sources]
    if not all(isinstance(each, str) for each in specs):
        raise reject("source", source, wanted)
    if not specs:
        raise TraceError("nothing to open: the list is empty")
    return specs
