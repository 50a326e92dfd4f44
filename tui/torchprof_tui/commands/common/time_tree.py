"""Format a time tree as lines of text, and as records of a JSON document."""

from __future__ import annotations

from typing import Annotated

from msgspec import UNSET, UnsetType, field

from torchprof_tui.analysis.patterns.engine.registry import registered_patterns
from torchprof_tui.analysis.patterns.verdict.tree_lines import MAX_LINES, select_tree_lines
from torchprof_tui.analysis.patterns.verdict.tree_model import COMPUTE, TimePart, TimeTree
from torchprof_tui.commands.common.json_document import Record, about
from torchprof_tui.trace.core.printable import clean
from torchprof_tui.trace.core.time_format import format_duration
from torchprof_tui.ui.common.number_format import format_share

_INDENT = 2
_SHARE_CELLS, _TIME_CELLS = 6, 9


def format_time_tree(tree: TimeTree, max_lines: int = MAX_LINES) -> list[str]:
    """Format the largest parts of a tree, one line each: share, time, cause; what lies inside a part is indented."""
    lines = []
    for line in select_tree_lines(tree, max_lines):
        indent = " " * (_INDENT * line.depth)
        numbers = f"{format_share(line.share):>{_SHARE_CELLS}}  {format_duration(line.time):>{_TIME_CELLS}}"
        lines.append(f"{indent}{numbers}  {clean(line.label)}")
    return lines


def format_device_count(tree: TimeTree) -> str:
    """Format over how many devices the times of a tree are the mean, "" for one."""
    return f", mean of {tree.device_count} GPUs" if tree.device_count > 1 else ""


class InnerTimeRecord(Record, frozen=True, kw_only=True):
    """What explains a part of a cause. Exactly one of `class`, `pattern` and `op` names it."""

    kernel_class: Annotated[str | UnsetType, about("class of GPU work, such as gemm")] = field(
        name="class", default=UNSET
    )
    pattern: Annotated[str | UnsetType, about("id of a pattern of `check`")] = UNSET
    op: Annotated[str | UnsetType, about("op or call, as recorded")] = UNSET
    us: Annotated[float, about("time, mean of the devices")]
    share: Annotated[float, about("of the scope")]
    contains: Annotated[list[InnerTimeRecord] | UnsetType, about("the parts inside it; left out for none")] = UNSET


class TimeRecord(Record, frozen=True, kw_only=True):
    """One cause of the scope's time."""

    cause: Annotated[str, about("stable name: compute, copies, dispatch, input, …")]
    label: Annotated[str, about("the cause in words")]
    us: Annotated[float, about("time, mean of the devices")]
    share: Annotated[float, about("of the scope")]
    contains: Annotated[list[InnerTimeRecord], about("the parts inside it; sums to its time at most")]


def build_time_records(tree: TimeTree | None) -> list[TimeRecord]:
    """Build the list `causes`; `us` is the mean of the devices, so that the top level sums to the scope's length."""
    if tree is None:
        return []
    return [
        TimeRecord(
            cause=part.id,
            label=part.label,
            us=_measure_us(tree, part),
            share=_measure_share(tree, part),
            contains=[_build_inner_record(tree, inner, part.id == COMPUTE) for inner in part.parts],
        )
        for part in tree.parts
    ]


def _build_inner_record(tree: TimeTree, part: TimePart, is_class: bool) -> InnerTimeRecord:
    inner = [_build_inner_record(tree, each, False) for each in part.parts]
    is_pattern = not is_class and part.id in registered_patterns()
    return InnerTimeRecord(
        kernel_class=part.id if is_class else UNSET,
        pattern=part.id if is_pattern else UNSET,
        op=UNSET if is_class or is_pattern else part.id,
        us=_measure_us(tree, part),
        share=_measure_share(tree, part),
        contains=inner or UNSET,
    )


def _measure_us(tree: TimeTree, part: TimePart) -> float:
    return part.time / tree.device_count / 1000


def _measure_share(tree: TimeTree, part: TimePart) -> float:
    return round(tree.share(part), 6)
