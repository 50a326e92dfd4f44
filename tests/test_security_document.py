"""Check that SECURITY.md names tests and modules that exist, and that the README links it."""

from __future__ import annotations

import ast
import re

import pytest

from tests.helpers.paths import ROOT

DOCUMENT = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
ROWS = [line.strip("|").split(" | ") for line in DOCUMENT.splitlines() if line.startswith("| ")][1:]
TESTS = sorted(set(re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", DOCUMENT)))


@pytest.mark.parametrize(("file", "name"), TESTS)
def test_a_named_test_exists(file: str, name: str) -> None:
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    assert name in [node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]


def test_each_threat_has_a_defence_and_a_test() -> None:
    assert len(ROWS) > 15
    for row in ROWS:
        assert len(row) == 4, row
        assert re.search(r"`tests/[\w/]+\.py::\w+`", row[3]), row
        for module in re.findall(r"`((?:trace|runs|ui)/[\w/]+(?:\.py)?)`", row[2]):
            assert (ROOT / "tui" / "torchprof_tui" / module).exists(), module


def test_the_readme_links_it() -> None:
    assert "/SECURITY.md)" in (ROOT / "README.md").read_text(encoding="utf-8")
