"""Hold the budgets of size: lines per file and function, cyclomatic complexity, imports inside functions."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.helpers.paths import ROOT

radon = pytest.importorskip("radon.complexity")

FOLDERS = ("tui", "profiler_runs", "sample_traces", "benchmarks", "tools")
MAX_FILE_LINES = 800
"""A file is as long as its one subject; a longer one has several."""
MAX_FUNCTION_LINES = 60
MAX_COMPLEXITY = 30
"""Radon's grade D ends here; E begins."""
LARGE_COMPLEXITY = 20
MAX_LARGE = 5
MAX_DEFERRED_IMPORTS = 60

LONG_FILES: dict[str, str] = {}
"""Files that may be longer, each with its reason."""

Function = ast.FunctionDef | ast.AsyncFunctionDef


def source_files() -> list[Path]:
    """List the program's own files."""
    return sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py"))


def functions() -> Iterator[tuple[str, Function]]:
    """Yield every function with a label for messages."""
    for path in source_files():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield f"{path.relative_to(ROOT)}: {node.name}", node


def test_files_are_short() -> None:
    lines = {str(path.relative_to(ROOT)): len(path.read_text(encoding="utf-8").splitlines()) for path in source_files()}
    assert {name for name, count in lines.items() if count > MAX_FILE_LINES} == set(LONG_FILES)


def test_functions_are_short() -> None:
    assert not [name for name, node in functions() if (node.end_lineno or 0) - node.lineno + 1 > MAX_FUNCTION_LINES]


def test_functions_are_simple() -> None:
    blocks = [block for path in source_files() for block in radon.cc_visit(path.read_text(encoding="utf-8"))]
    assert not [block.name for block in blocks if block.complexity > MAX_COMPLEXITY]
    assert len([block.name for block in blocks if block.complexity > LARGE_COMPLEXITY]) <= MAX_LARGE


def test_few_imports_are_deferred() -> None:
    """An import inside a function hides a dependency: only start-up time or a cycle is a reason.

    Not counted: benchmarks, which measure imports.
    """
    deferred = {
        f"{name.partition(':')[0]}:{child.lineno}"
        for name, node in functions()
        if not name.startswith("benchmarks")
        for child in ast.walk(node)
        if isinstance(child, ast.Import | ast.ImportFrom)
    }
    assert len(deferred) <= MAX_DEFERRED_IMPORTS, sorted(deferred)
