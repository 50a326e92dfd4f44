"""The time of a scope by cause, and what lies inside each cause."""

from __future__ import annotations

from typing import Annotated

from msgspec import field

from torchprof_tui.analysis.patterns.engine.pattern import registered_patterns
from torchprof_tui.analysis.patterns.verdict.tree_model import COMPUTE, TimeTree
from torchprof_tui.analysis.patterns.verdict.tree_model import TimePart as TreePart
from torchprof_tui.answers.record import Record, about


class InnerTime(Record, frozen=True, kw_only=True):
    """What explains a part of a cause. Exactly one of `class`, `pattern` and `op` names it."""

    kernel_class: Annotated[str | None, about("class of GPU work, such as gemm")] = field(name="class", default=None)
    pattern: Annotated[str | None, about("id of a pattern of `check`")] = None
    op: Annotated[str | None, about("op or call, as recorded")] = None
    us: Annotated[float, about("time, mean of the devices")]
    share: Annotated[float, about("of the scope")]
    contains: Annotated[list[InnerTime] | None, about("the parts inside it; left out for none")] = None


class TimePart(Record, frozen=True, kw_only=True):
    """One cause of the scope's time."""

    cause: Annotated[str, about("stable name: compute, copies, dispatch, input, …")]
    label: Annotated[str, about("the cause in words")]
    us: Annotated[float, about("time, mean of the devices")]
    share: Annotated[float, about("of the scope")]
    contains: Annotated[list[InnerTime], about("the parts inside it; sums to its time at most")]


def build_time_parts(tree: TimeTree | None) -> list[TimePart]:
    """Build the list `causes`; `us` is the mean of the devices, so that the top level sums to the scope's length."""
    if tree is None:
        return []
    return [
        TimePart(
            cause=part.id,
            label=part.label,
            us=part.time / tree.device_count / 1000,
            share=round(tree.share(part), 6),
            contains=[_build_inner(tree, inner, part.id == COMPUTE) for inner in part.parts],
        )
        for part in tree.parts
    ]


def _build_inner(tree: TimeTree, part: TreePart, is_class: bool) -> InnerTime:
    is_pattern = not is_class and part.id in registered_patterns()
    return InnerTime(
        kernel_class=part.id if is_class else None,
        pattern=part.id if is_pattern else None,
        op=None if is_class or is_pattern else part.id,
        us=part.time / tree.device_count / 1000,
        share=round(tree.share(part), 6),
        contains=[_build_inner(tree, each, False) for each in part.parts] or None,
    )
