"""Test that the mutation run knows its modules and tests, and that each mutant is one change of valid code."""

from __future__ import annotations

import ast
import random

import pytest

from tests.helpers.paths import ROOT
from tools import mutation


@pytest.mark.parametrize("topic", mutation.TOPICS)
def test_modules_and_tests_of_a_topic_exist(topic: str) -> None:
    patterns, tests = (words.split() for words in mutation.TOPICS[topic])
    assert all(list(mutation.PACKAGE.glob(pattern)) for pattern in patterns)
    assert all((ROOT / path.removeprefix("--ignore=")).exists() for path in tests)


def test_a_mutant_is_one_change_of_valid_code() -> None:
    mutants = mutation.list_mutants()
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
