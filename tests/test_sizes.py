"""Hold the budgets of size: lines per function, cyclomatic complexity, imports inside functions.

The length of a file has no budget: a file is as long as its one subject.
"""

from __future__ import annotations

import ast
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


@cache
def parse_source_files() -> dict[str, ast.Module]:
    """Parse the program's own files, once for all tests."""
    paths = sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py"))
    with pause_garbage_collection():  # millions of objects
        return {str(path.relative_to(ROOT)): ast.parse(path.read_bytes()) for path in paths}


@cache
def list_functions() -> list[tuple[str, Function]]:
    """List every function with a label for messages."""
    return [
        (f"{name}: {node.name}", node)
        for name, tree in parse_source_files().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]


def test_functions_are_short() -> None:
    assert not [name for name, node in list_functions() if (node.end_lineno or 0) - node.lineno >= MAX_FUNCTION_LINES]


def test_functions_are_simple() -> None:
    blocks = [block for tree in parse_source_files().values() for block in radon.cc_visit_ast(tree)]
    assert not [block.name for block in blocks if block.complexity > MAX_COMPLEXITY]
    assert len([block.name for block in blocks if block.complexity > LARGE_COMPLEXITY]) <= MAX_LARGE


def test_few_imports_are_deferred() -> None:
    """An import inside a function hides a dependency: only start-up time or a cycle is a reason.

    Not counted: benchmarks, which measure imports, and tools, whose models need libraries that few have.
    """
    deferred = {
        f"{name.partition(':')[0]}:{child.lineno}"
        for name, node in list_functions()
        if not name.startswith(("benchmarks", "tools"))
        for child in ast.walk(node)
        if isinstance(child, ast.Import | ast.ImportFrom)
    }
    assert len(deferred) <= MAX_DEFERRED_IMPORTS, sorted(deferred)
