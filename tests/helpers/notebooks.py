"""Run the code cells of a notebook in order, without Jupyter, and compare or store what they print."""

from __future__ import annotations

import ast
import contextlib
import io
import json
import pprint
from pathlib import Path
from typing import Any

Notebook = dict[str, Any]


def read_notebook(path: Path) -> Notebook:
    notebook: Notebook = json.loads(path.read_text(encoding="utf-8"))
    return notebook


def run_cells(notebook: Notebook) -> list[str]:
    """Run all code cells in one namespace; return the output of each: what it prints, then its last expression."""
    namespace: dict[str, Any] = {"__name__": "__main__"}
    return [_run_cell("".join(cell["source"]), namespace) for cell in notebook["cells"] if cell["cell_type"] == "code"]


def _run_cell(source: str, namespace: dict[str, Any]) -> str:
    tree = ast.parse(source)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(tree, "<cell>", "exec"), namespace)
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), "<cell>", "eval"), namespace)
            if value is not None:
                print(pprint.pformat(value, width=100, sort_dicts=False))
    return printed.getvalue()


def list_outputs(notebook: Notebook) -> list[str]:
    """List the stored output of each code cell, "" for none."""
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    return ["".join(line for output in cell["outputs"] for line in output["text"]) for cell in cells]


def store_outputs(path: Path, notebook: Notebook, outputs: list[str]) -> None:
    """Write the notebook with these outputs, as Jupyter formats it."""
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    for count, (cell, text) in enumerate(zip(cells, outputs, strict=True), 1):
        stream = {"name": "stdout", "output_type": "stream", "text": text.splitlines(keepends=True)}
        cell["execution_count"], cell["outputs"] = count, [stream] if text else []
    path.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
