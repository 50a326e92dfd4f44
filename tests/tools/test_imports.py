"""Test that every name that benchmarks and tools import from this repository exists: no type checker reads them."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest

from tests.helpers.long_run import keep_some
from tests.helpers.paths import ROOT

FOLDERS = (ROOT / "tui", ROOT / "profiler_runs", ROOT / "sample_traces", ROOT)
OWN = ("torchprof_tui", "torchprof_fleet", "torchprof_hang", "torchprof_nsight", "torchprof_runs", "torchprof_samples")
PROGRAMS = [path for folder in ("benchmarks", "tools") for path in sorted((ROOT / folder).rglob("*.py"))]


def find_module(module: str) -> Path | None:
    places = [folder.joinpath(*module.split(".")) for folder in FOLDERS]
    files = [file for place in places for file in (place / "__init__.py", place.with_suffix(".py"))]
    folders = [place for place in places if place.is_dir()]
    return next((path for path in [*files, *folders] if path.exists()), None)


@cache
def list_names(module: str) -> set[str]:
    """List what a module defines or imports, and the modules of a package."""
    path = find_module(module)
    if path is None:
        return set()
    folder = path if path.is_dir() else path.parent
    names = {each.stem for each in folder.iterdir()} if path.is_dir() or path.name == "__init__.py" else set()
    statements = ast.parse(path.read_bytes()).body if path.is_file() else []
    defined = [each for each in statements if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)]
    names |= {each.name for each in defined} | {"__file__"}
    for node in (node for each in statements if each not in defined for node in ast.walk(each)):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, ast.alias):
            names.add(node.asname or node.name.partition(".")[0])
    return names


@pytest.mark.parametrize("program", keep_some(PROGRAMS, 30), ids=lambda path: str(path.relative_to(ROOT)))
def test_imported_names_exist(program: Path) -> None:
    missing = []
    for node in ast.walk(ast.parse(program.read_bytes())):
        if isinstance(node, ast.Import):
            imported = [(each.name, "") for each in node.names]
        elif isinstance(node, ast.ImportFrom) and not node.level:
            imported = [(node.module or "", each.name) for each in node.names]
        else:
            continue
        for module, name in imported:
            if module.partition(".")[0] not in (*OWN, "benchmarks", "tools", "tests"):
                continue
            if find_module(module) is None or (name and name not in list_names(module)):
                missing.append(f"{program.name}:{node.lineno}: {module} {name}")
    assert not missing


def test_a_missing_name_is_noticed() -> None:
    assert find_module("tools.mutation") is not None
    assert find_module("tools.mutations") is None
    assert "list_mutants" in list_names("tools.mutation")
    assert "lost" not in list_names("tools.mutation")
