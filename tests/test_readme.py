"""Check that CI runs exactly the test command of the README."""

from __future__ import annotations

from tests.helpers.paths import ROOT


def test_ci_runs_the_test_command_of_the_readme() -> None:
    line = "python3 -m venv .venv && .venv/bin/pip install -q -c constraints.txt -e '.[dev]' && .venv/bin/pytest"
    assert f"\n{line}\n" in (ROOT / "README.md").read_text(encoding="utf-8")
    assert f"\n{line}\n" in (ROOT / ".ci" / "run").read_text(encoding="utf-8")
