"""Label a line of the program, the cost of a problem and a trace: the same words in text, Markdown and on screen."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from torchprof_tui.trace.core.errors import TraceError
from torchprof_tui.trace.core.time_format import format_duration
from torchprof_tui.trace.specs.address import SAMPLE_PREFIX, is_url, parse_ssh_path
from torchprof_tui.ui.common.name_display import clean
from torchprof_tui.ui.common.number_format import format_bandwidth, format_share

if TYPE_CHECKING:
    from torchprof_tui.analysis.dispatch.source_line import SourceLine
    from torchprof_tui.analysis.kernel.memory_transfer import Transfer
    from torchprof_tui.analysis.patterns.engine.pattern import Finding
    from torchprof_tui.analysis.patterns.verdict.costs import CostBase


def describe_kind(line: SourceLine) -> str:
    """Return what is known about the origin of an event: "line", "file", "line of its forward", "annotation", …"""
    kind = {"frame": "file" if line.line is None else "line"}.get(line.kind, line.kind)
    return f"{kind} of its forward" if line.from_forward else kind


_LESS = 0.9  # of its cost: what a fix saves is said where it is less than that. Else both are the same number


_LIMITS_AFTER_FIX = {"straggler": ": then the other ranks' own work limits the step"}
_LIMITS_AFTER_FIX |= dict.fromkeys(("sync-in-step", "token-sync"), ": then something else limits the step")
"""Why a fix that leaves nothing of what is waited saves less than that."""


def describe_cost(finding: Finding, base: CostBase) -> str:
    """Describe what a finding costs and its fix saves: "up to 27.1 ms, 81 %; a fix saves at most 64 %".

    "" where it costs nothing.
    """
    if not finding.cost:
        return ""
    text = f"up to {format_duration(base.price(finding))}, {format_share(finding.share)}"
    return f"{text}; {saving}" if (saving := describe_saving(finding)) else text


def describe_saving(finding: Finding) -> str:
    """Describe what a fix saves, where that is claimed, less than the finding costs and not nothing."""
    if not finding.claimed or finding.claimed >= _LESS * finding.share:
        return ""
    # imported by name: lanes are shown before any finding
    errors = importlib.import_module("torchprof_tui.analysis.patterns.verdict.forecast_errors")
    error = errors.find_forecast_error(finding.id)
    measured = error.describe() if error is not None else ""
    text = f"a fix saves at most {format_share(finding.claimed)}{_LIMITS_AFTER_FIX.get(finding.id, '')}"
    return f"{text}, {measured}" if measured else text


def list_reasons(finding: Finding) -> list[tuple[str, str]]:
    """List why a finding costs time and what to do about it: (word, text). As recorded: `clean` them."""
    return [("why", finding.pattern.meaning), ("do", finding.remedy.action)]


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


def describe_share_of_peak(transfer: Transfer) -> str:
    """Compare the bandwidth of a copy or fill with its peak, "" where that is unknown.

    The memory both reads and writes the bytes of a copy inside a device. More than its peak is a part in a cache.
    """
    peak, share = transfer.peak_bandwidth, transfer.share_of_peak
    if peak is None or share is None:
        return ""
    is_inside = transfer.source == transfer.target == "device"
    text = f"read and written {format_bandwidth(share * peak)}, " if is_inside else ""
    if share <= 1:
        return f"{text}{format_share(share)} of {format_bandwidth(peak)} ({transfer.peak_source})"
    reason = ": a part stayed in a cache" if transfer.peak_source == "device memory" else ""
    return f"{text}more than {format_bandwidth(peak)} ({transfer.peak_source}){reason}"
