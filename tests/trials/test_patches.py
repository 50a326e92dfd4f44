"""Diffs of remedies: each applies to the program with git, and the program that comes out does what the remedy is."""

from __future__ import annotations

import ast
import subprocess
from pathlib import Path

import pytest

from torchprof_try.patches import Places, build_patch, describe_place, format_patch
from torchprof_try.remedies import BY_NAME, REMEDIES

PROGRAM = """\
import sys
import torch
from torch.utils.data import DataLoader

torch.backends.cuda.enable_flash_sdp(False)
torch.autograd.set_detect_anomaly(True)


def build(data):
    ü = "é"  # columns are bytes
    loader = DataLoader(
        data,
        batch_size=4,
    )
    loader = DataLoader(data, num_workers=0); print(ü)
    return loader, torch.optim.AdamW(model.parameters(), lr=1e-4, foreach=False)


def train(loader, optimizer, device):
    for images in loader:
        images = images.to(device)
        optimizer.zero_grad(set_to_none=False)
        output = model(
            images)
        if output.sum() > 0:
            torch.cuda.synchronize()
        torch.cuda.empty_cache()
        output.sum().backward()
        optimizer.step()
"""
FILE = "train.py"


def find(text: str) -> int:
    return next(number for number, line in enumerate(PROGRAM.splitlines(), 1) if text in line)


LINES = {
    "workers": [find("batch_size=4")],
    "pin-memory": [find("DataLoader(data, num_workers=0)")],
    "non-blocking": [find("images.to(device)")],
    "fused-optimizer": [find("AdamW")],
    "set-to-none": [find("zero_grad")],
    "no-anomaly-mode": [find("set_detect_anomaly")],
    "no-synchronize": [find("synchronize")],
    "keep-cache": [find("empty_cache")],
}
CHANGED = {
    "workers": ["batch_size=4, num_workers=", "persistent_workers=True"],
    "pin-memory": ["DataLoader(data, num_workers=0, pin_memory=True); print"],
    "non-blocking": ["images.to(device, non_blocking=True)"],
    "fused-optimizer": ["lr=1e-4, foreach=False, fused=True)"],
    "foreach-optimizer": ["lr=1e-4, foreach=True)"],
    "set-to-none": ["zero_grad(set_to_none=True)"],
    "no-anomaly-mode": ["set_detect_anomaly(False)"],
    "no-synchronize": ["            pass"],
    "keep-cache": [],
    "bf16": ['        with torch.autocast("cuda", torch.bfloat16):', "            output = model("],
    "compile": ["    model.compile()"],
    "compile-max-autotune": ['    model.compile(mode="max-autotune-no-cudagraphs")'],
    "channels-last": [
        "    model.to(memory_format=torch.channels_last)",
        "images.to(memory_format=torch.channels_last))",
    ],
    "tf32": ['torch.set_float32_matmul_precision("high")'],
    "fused-attention": ["torch.backends.cuda.enable_flash_sdp(True)"],
    "gc-frozen": ["gc.freeze()"],
}


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Places:
    monkeypatch.chdir(tmp_path)
    (tmp_path / FILE).write_text(PROGRAM)
    path = str(tmp_path / FILE)
    lines = {name: [(path, number) for number in numbers] for name, numbers in LINES.items()}
    return Places(path, lines, [(path, find("output = model("))])


def apply(diff: str, folder: Path) -> str:
    """Check and apply a diff with git, outside of a repository, and return the program that comes out."""
    (folder / "change.patch").write_text(diff)
    for check in (["--check"], []):
        subprocess.run(["git", "apply", *check, "change.patch"], cwd=folder, check=True)
    return (folder / FILE).read_text()


@pytest.mark.parametrize("name", CHANGED)
def test_a_diff_applies_and_changes_the_place(places: Places, tmp_path: Path, name: str) -> None:
    remedy = BY_NAME[name]
    patch = build_patch([remedy], places)
    assert not patch.left
    assert (tmp_path / FILE).read_text() == PROGRAM  # nothing is applied
    after = apply(format_patch([(remedy, "saved 10% of a step")], places), tmp_path)
    ast.parse(after)
    added = [line for line in after.splitlines() if line not in PROGRAM.splitlines()]
    for text in CHANGED[name]:
        assert any(text in line for line in added), added
    if name in LINES:
        assert patch.places == (f"{FILE}:{LINES[name][0]}",)
    if name == "keep-cache":
        assert "empty_cache" not in after


def test_several_remedies_are_one_diff(places: Places, tmp_path: Path) -> None:
    names = ["workers", "non-blocking", "fused-optimizer", "tf32", "bf16", "compile", "channels-last", "set-to-none"]
    remedies = [BY_NAME[name] for name in names]
    patch = build_patch(remedies, places)
    assert not patch.left
    after = apply(format_patch([(remedy, "not measured") for remedy in remedies], places), tmp_path)
    for name in names:
        for text in CHANGED[name]:
            assert text.strip() in after, name


def test_the_place_is_the_only_call_of_that_name(tmp_path: Path) -> None:
    path = tmp_path / FILE
    path.write_text("import torch\n\n\ndef f():\n    return torch.utils.data.DataLoader([1])\n")
    patch = build_patch([BY_NAME["pin-memory"]], Places(str(path)))
    assert "+    return torch.utils.data.DataLoader([1], pin_memory=True)" in patch.diff
    path.write_text("a = DataLoader(1)\nb = DataLoader(2)\n")
    assert build_patch([BY_NAME["pin-memory"]], Places(str(path))).diff == ""


def test_a_finding_names_the_function_that_is_searched(tmp_path: Path) -> None:
    path = tmp_path / FILE
    path.write_text("def f():\n    return DataLoader(1)\n\n\ndef g():\n    return DataLoader(2)\n")
    suggested = {"pin-memory": [(str(path), 5)]}  # the profiler names the line where a function begins
    patch = build_patch([BY_NAME["pin-memory"]], Places(str(path), suggested=suggested))
    assert "+    return DataLoader(2, pin_memory=True)" in patch.diff
    assert "-    return DataLoader(1)" not in patch.diff


@pytest.mark.parametrize("source", [None, "not python (", "model = 1\n", "\x00"])
def test_without_a_place_it_says_where_it_belongs(tmp_path: Path, source: str | None) -> None:
    path = tmp_path / FILE
    if source is not None:
        path.write_text(source)
    places = Places(str(path), {remedy.name: [(str(path), 1)] for remedy in REMEDIES}, [(str(path), 1)])
    for remedy in REMEDIES:
        patch = build_patch([remedy], places)
        assert patch.diff == ""
        text = format_patch([(remedy, "not measured")], places)
        assert f"# belongs {describe_place(remedy)}" in text
        assert remedy.patch.splitlines()[0] in text


def test_line_ends_stay_what_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / FILE
    path.write_bytes(b"import torch\r\nx = 1\r\nloader = DataLoader(x)")
    patch = build_patch([BY_NAME["pin-memory"]], Places(str(path)))
    (tmp_path / "change.patch").write_bytes(patch.diff.encode())
    subprocess.run(["git", "apply", "change.patch"], cwd=tmp_path, check=True)
    assert path.read_bytes() == b"import torch\r\nx = 1\r\nloader = DataLoader(x, pin_memory=True)"
