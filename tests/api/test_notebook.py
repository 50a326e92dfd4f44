"""Run docs/api.ipynb and the examples of docs/api.md; UPDATE_GOLDENS=1 stores what the notebook prints."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

import torchprof_tui as tt
from tests.helpers.notebooks import list_outputs, read_notebook, run_cells, store_outputs
from tests.helpers.paths import ROOT, SAMPLES
from torchprof_tui.analysis.export.event_columns import COLUMNS

NOTEBOOK, PAGE = ROOT / "docs" / "api.ipynb", ROOT / "docs" / "api.md"


@pytest.mark.long
def test_the_notebook_prints_what_it_shows() -> None:
    notebook = read_notebook(NOTEBOOK)
    outputs = run_cells(notebook)
    if os.environ.get("UPDATE_GOLDENS"):
        store_outputs(NOTEBOOK, notebook, outputs)
    assert outputs == list_outputs(read_notebook(NOTEBOOK))
    assert "".join(outputs).count("\n") > 20


def test_the_notebook_is_one() -> None:
    notebook = read_notebook(NOTEBOOK)
    assert (notebook["nbformat"], notebook["nbformat_minor"]) == (4, 5)
    for cell in notebook["cells"]:
        assert re.fullmatch(r"[a-z0-9-]{1,64}", cell["id"])
        keys = {"cell_type", "id", "metadata", "source"}
        assert set(cell) == (keys | {"execution_count", "outputs"} if cell["cell_type"] == "code" else keys)
    assert len({cell["id"] for cell in notebook["cells"]}) == len(notebook["cells"])


def test_the_examples_of_the_page_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name, sample in (("trace", "train_gpt_stack_memory"), ("other", "train_gpt_starved")):
        (tmp_path / f"{name}.json.gz").write_bytes((SAMPLES / f"{sample}.pt.trace.json.gz").read_bytes())
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert blocks
    namespace: dict[str, object] = {}
    for block in blocks:
        exec(compile(block, str(PAGE), "exec"), namespace)


def test_the_page_names_everything() -> None:
    text = PAGE.read_text(encoding="utf-8")
    public = [name for name in dir(tt.Trace) if not name.startswith("_")]
    assert not [name for name in (*COLUMNS, *public) if f"`{name}" not in text and f".{name}" not in text]
