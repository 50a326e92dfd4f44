"""Label a problem with what it costs: the same words in text, Markdown and on screen."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torchprof_tui.trace.core.time_format import format_duration
from torchprof_tui.ui.common.number_format import format_share

if TYPE_CHECKING:
    from torchprof_tui.analysis.patterns.engine.pattern import Finding
    from torchprof_tui.analysis.patterns.verdict.costs import CostBase

_LESS = 0.9
"""Of its cost: what a fix saves is said where it is less than that. Else both are the same number."""


def describe_cost(finding: Finding, base: CostBase, with_label: bool = False) -> str:
    """Describe what a finding costs and its fix saves: "up to 27.1 ms, 81 %; a fix saves at most 64 %".

    `with_label`: say what it is a share of. "" where it costs nothing.
    """
    if not finding.cost:
        return ""
    share = f"{format_share(finding.share)}{f' of {base.label}' if with_label else ''}"
    text = f"up to {format_duration(finding.share * base.unit)}, {share}"
    return f"{text}; {saving}" if (saving := describe_saving(finding)) else text


def describe_saving(finding: Finding) -> str:
    """Describe what a fix saves, where that is less than the finding costs and not nothing."""
    if not finding.won or finding.won >= _LESS * finding.share:
        return ""
    return f"a fix saves at most {format_share(finding.won)}"


def list_reasons(finding: Finding) -> list[tuple[str, str]]:
    """List why a finding costs time and what to do about it: (word, text). As recorded: `clean` them."""
    return [("why", finding.pattern.meaning), ("do", finding.remedy.action)]
