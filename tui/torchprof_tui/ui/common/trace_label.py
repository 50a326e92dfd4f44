"""The short name of a trace in titles: without folder and suffixes."""

from __future__ import annotations

from torchprof_tui.trace.core.errors import TraceError
from torchprof_tui.trace.loading.resolve import SAMPLE_PREFIX
from torchprof_tui.trace.specs.address import is_url, parse_ssh_path
from torchprof_tui.ui.common.name_display import clean

_SUFFIXES = (".gz", ".xz", ".zst", ".json", ".pftrace", ".trace", ".pt")


def short_label(label: str) -> str:
    """Return the file name without folder and suffixes, cleaned; `host:name` for a remote trace."""
    name = label.replace("\\", "/").rstrip("/").rpartition("/")[2] or label
    stem = name
    while stem.endswith(_SUFFIXES):
        stem = stem.rpartition(".")[0]
    host = _host_name(label)
    return clean(f"{host}:{stem or name}" if host else stem or name)


def _host_name(label: str) -> str:
    """Return the host (or bucket) of a remote trace, "" for a local one."""
    if is_url(label):
        # Not urlsplit, which refuses the brackets of a pattern; the last part of a chain has the host.
        return label.rpartition("://")[2].partition("/")[0].rpartition("@")[2]
    if label.startswith(SAMPLE_PREFIX):
        return ""
    try:
        ssh_path = parse_ssh_path(label)
    except TraceError:  # what the names of several ranks have in common need not be a name
        return ""
    return "" if ssh_path is None else ssh_path.host_name
