"""Test that the mutation run knows its modules and tests, and that each mutant is one change of valid code."""

from __future__ import annotations

import ast
import json
import random
from pathlib import Path
from types import ModuleType

import pytest

from tests.helpers.paths import ROOT
from tools import mutation


@pytest.fixture(scope="module")
def mutants() -> list[mutation.Mutant]:
    """All mutants of the modules."""
    return mutation.list_mutants()


@pytest.mark.parametrize("topic", mutation.TOPICS)
def test_modules_and_tests_of_a_topic_exist(topic: str) -> None:
    patterns, tests = (words.split() for words in mutation.TOPICS[topic])
    assert all(list(mutation.PACKAGE.glob(pattern)) for pattern in patterns)
    assert all((ROOT / path.removeprefix("--ignore=")).exists() for path in tests)


@pytest.mark.long
def test_a_mutant_is_one_change_of_valid_code(mutants: list[mutation.Mutant]) -> None:
    assert {mutant.topic for mutant in mutants} == set(mutation.TOPICS)
    for mutant in random.Random(5).sample(mutants, 40):
        ast.parse(mutant.text)
        assert mutant.difference.startswith("@@ -")
        assert mutant.difference.count("@@ -") == 1


@pytest.mark.parametrize(
    ("code", "mutants"),
    [
        ("a < b", {"(a <= b)"}),
        ("a + 1", {"(a - 1)", "a + (2)"}),
        ("not a and b", {"(not a or b)", "(a) and b"}),
        ("min(a, 'left')", {"(max)(a, 'left')", "min(a, ('right'))"}),
        ("a if b else c", {"a if (not b) else c"}),
        ("-1", {"-(2)"}),
        ("f'{a < b}'", set()),
        ("zip(a, b, strict=True)", set()),
    ],
)
def test_changes(code: str, mutants: set[str]) -> None:
    text = f"def f(a, b, c):\n    return {code}\n"
    made = {
        mutation._replace(text, node, ast.unparse(changed)).splitlines()[1].removeprefix("    return ")
        for node, changed in mutation._list_changes(ast.parse(text), is_function=False)
    }
    assert made == mutants


def test_calls_are_removed_and_constants_of_modules_are_kept() -> None:
    text = "SIZE = 1 + 2\n\ndef f(a):\n    a.sort()\n"
    made = [
        mutation._replace(text, node, ast.unparse(changed))
        for node, changed in mutation._list_changes(ast.parse(text), is_function=False)
    ]
    assert made == [text.replace("a.sort()", "pass")]


@pytest.mark.long
def test_the_code_of_one_function_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mutation, "PACKAGE", tmp_path)
    mutation.read_module.cache_clear()
    text = "class A:\n    def f(self, a):\n        return (a +\n            1)\n\n    def g(self):\n        return 1\n"
    path = tmp_path / "module.py"
    path.write_text(text, encoding="utf-8")
    module = ModuleType("module")
    names = vars(module)
    exec(compile(text, str(path), "exec"), names)
    mutants = [
        mutation.Mutant("topic", "module.py", node.lineno, mutation._replace(text, node, ast.unparse(changed)))
        for node, changed in mutation._list_changes(ast.parse(text), is_function=False)
    ]
    changes = [mutation._Change.of(mutant) for mutant in mutants]
    assert [list(change.lines) for change in changes if change is not None] == [[2, 3, 4], [2, 3, 4], [6, 7]]
    found = []
    for change in changes:
        assert change is not None
        change.apply(module)
        found.append((names["A"]().f(10), names["A"]().g()))
        mutation._Change(change.after, change.before).apply(module)
    assert found == [(9, 1), (12, 1), (11, 2)]
    assert (names["A"]().f(10), names["A"]().g()) == (11, 1)


@pytest.mark.long
def test_results_go_on_where_a_run_ended(tmp_path: Path, mutants: list[mutation.Mutant]) -> None:
    mutants = random.Random(6).sample(mutants, 3)
    rows = [
        {"module": mutant.module, "line": mutant.line, "difference": mutant.difference, "outcome": outcome}
        for mutant, outcome in zip(mutants, ("caught", "survived"), strict=False)
    ]
    path = tmp_path / "results.jsonl"
    assert mutation.read_results(path, mutants) == {}
    path.write_text("".join(json.dumps(row) + "\n" for row in [*rows, {**rows[1], "outcome": "caught"}]))
    known = mutation.read_results(path, mutants)
    assert [known[mutant]["outcome"] for mutant in mutants[:2]] == ["caught", "caught"]  # the last of each counts
    assert mutants[2] not in known
