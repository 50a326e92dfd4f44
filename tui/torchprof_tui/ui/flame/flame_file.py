"""Write the frames of a flame graph to a file, in the format of its suffix."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from torchprof_tui.analysis.flame.flame_export import format_speedscope, iterate_folded_lines
from torchprof_tui.analysis.flame.flame_tree import FlameTree
from torchprof_tui.trace.core.atomic_file import OutputError, check_target, expand_path, write_atomically

_FORMATTERS: dict[str, Callable[[FlameTree, str], str]] = {
    ".folded": lambda tree, _: "".join(iterate_folded_lines(tree)),
    ".speedscope.json": format_speedscope,
}


def write_flame(tree: FlameTree, name: str, label: str) -> tuple[str, bool]:
    """Write a tree to a file that the user named; `label`: of the trace.

    Returns (a line that reports the outcome, whether the file was written). Existing files are never overwritten.
    """
    formatter = next((value for suffix, value in _FORMATTERS.items() if name.lower().endswith(suffix)), None)
    if formatter is None:
        return f"{Path(name).name}: the name must end in .folded or .speedscope.json", False
    try:
        path = expand_path(name)
        if check_target(path):
            return f"{path} exists already and was not overwritten; choose another name", False
        write_atomically(path, formatter(tree, label))
    except OutputError as error:
        return str(error), False
    return f"wrote {int((tree.value_ns > 0).sum()):,} stacks to {path}", True
