"""Hold the budgets of size: lines per function, cyclomatic complexity, imports inside functions.

The length of a file has no budget: a file is as long as its one subject.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache

import pytest

from tests.helpers.paths import ROOT
from torchprof_tui.trace.core.process_state import pause_garbage_collection

radon = pytest.importorskip("radon.complexity")

FOLDERS = ("tui", "profiler_runs", "sample_traces", "benchmarks", "tools")
MAX_FUNCTION_LINES = 60
MAX_COMPLEXITY = 30
"""Radon's grade D ends here; E begins."""
LARGE_COMPLEXITY = 20
MAX_LARGE = 5
MAX_DEFERRED_IMPORTS = 60

Function = ast.FunctionDef | ast.AsyncFunctionDef


BRANCH = re.compile(r"\b(?:and|assert|case|except|for|if|elif|else|lambda|or|while|with|match)\b")
"""What makes a function complex: radon counts each at most once."""


@cache
def list_functions() -> list[tuple[str, Function, str]]:
    """List every function with a label for messages and its source."""
    found = []
    with pause_garbage_collection():  # millions of objects
        for path in sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")):
            text = path.read_text(encoding="utf-8")
            lines = text.split("\n")
            found += [
                (f"{path.relative_to(ROOT)}: {node.name}", node, "\n".join(lines[node.lineno - 1 : node.end_lineno]))
                for node in walk_statements(ast.parse(text))
                if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
            ]
    return found


def walk_statements(node: ast.AST) -> Iterator[ast.AST]:
    """Walk the statements below a node; not their expressions, which are most of the nodes."""
    for field in ("body", "orelse", "handlers", "finalbody", "cases"):
        for child in getattr(node, field, ()):
            yield child
            yield from walk_statements(child)


@pytest.mark.long
def test_functions_are_short() -> None:
    lines = [(name, (node.end_lineno or 0) - node.lineno) for name, node, _ in list_functions()]
    assert not [name for name, count in lines if count >= MAX_FUNCTION_LINES]


@pytest.mark.long
def test_functions_are_simple() -> None:
    complexity = {
        f"{name}:{node.lineno}": radon.cc_visit_ast(ast.Module([node], []))[0].complexity
        for name, node, text in list_functions()
        if len(BRANCH.findall(text)) >= LARGE_COMPLEXITY
    }
    assert not [name for name, value in complexity.items() if value > MAX_COMPLEXITY]
    large = [name for name, value in complexity.items() if value > LARGE_COMPLEXITY]
    assert len(large) <= MAX_LARGE, large


@pytest.mark.long
def test_few_imports_are_deferred() -> None:
    """An import inside a function hides a dependency: only start-up time or a cycle is a reason.

    Not counted: benchmarks, which measure imports, and tools, whose models need libraries that few have.
    """
    deferred = {
        f"{name.partition(':')[0]}:{child.lineno}"
        for name, node, text in list_functions()
        if not name.startswith(("benchmarks", "tools")) and "import" in text
        for child in walk_statements(node)
        if isinstance(child, ast.Import | ast.ImportFrom)
    }
    assert len(deferred) <= MAX_DEFERRED_IMPORTS, sorted(deferred)
