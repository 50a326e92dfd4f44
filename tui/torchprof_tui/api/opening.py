"""Open a trace from Python."""

from __future__ import annotations

import os
from collections.abc import Sequence

from torchprof_tui.api.errors import translate_errors
from torchprof_tui.api.trace import Trace
from torchprof_tui.trace.core.errors import TraceError
from torchprof_tui.trace.loading.load_resolved import load_resolved
from torchprof_tui.trace.loading.progress import ignore_progress
from torchprof_tui.trace.loading.resolve import resolve_specs
from torchprof_tui.trace.sources.ssh_connections import SshConnections
from torchprof_tui.trace.storage.disk_cache import prune_cache

Source = str | os.PathLike[str]


def open(source: Source | Sequence[Source], *, rank: int | None = None, cache: bool = True) -> Trace:  # noqa: A001
    """Open a trace: whatever `torchprof-tui` opens.

    `source`: a file (plain or compressed), a folder or a pattern of ranks, `sample:NAME`, `host:path`, a URL, "-" for
    stdin; or a list of files, the ranks of one run. `rank`: only this rank of a run. `cache`: use the cache of decoded
    traces. Prints nothing and asks nothing; ssh must connect without a password. Raises TraceError, with one line that
    says what is wrong.
    """
    sources = [source] if isinstance(source, (str, os.PathLike)) else [*source]
    if not sources:
        raise TraceError("nothing to open: the list is empty")
    with translate_errors(), SshConnections() as connections:
        try:
            specs = [os.fspath(each) for each in sources]
            opened = load_resolved(resolve_specs(specs), connections, ignore_progress, cache)
        except ValueError as error:  # a name with a zero byte
            raise error if isinstance(error, TraceError) else TraceError(str(error)) from error
    if cache and not opened.cached:
        prune_cache()
    trace = Trace(opened.trace, opened.cache_entry)
    return trace if rank is None else trace.select_rank(rank)
