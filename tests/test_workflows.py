"""Check that the workflows call sessions that noxfile.py has, all that CI runs, and the README's commands."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from tests.helpers.paths import ROOT
from torchprof_tui import __version__

pytest.importorskip("nox")

WORKFLOWS = {path.name: path.read_text(encoding="utf-8") for path in sorted((ROOT / ".github/workflows").glob("*.yml"))}
CHECKS = WORKFLOWS["checks.yml"]
CI = (ROOT / ".ci" / "run").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def sessions(tmp_path_factory: pytest.TempPathFactory) -> dict[str, set[str]]:
    """Ask nox for its sessions: the full names by the name of the function that each is made of."""
    command = [sys.executable, "-m", "nox", "--list", "--noxfile", str(ROOT / "noxfile.py")]
    listed = subprocess.run(
        command, cwd=tmp_path_factory.mktemp("nox"), capture_output=True, text=True, timeout=120, check=True
    )
    found: dict[str, set[str]] = {}
    for name in re.findall(r"^[-*] (\S+)(?: -> |$)", listed.stdout, re.MULTILINE):
        found.setdefault(re.split(r"[-(]", name)[0], set()).add(name)
    return found


def list_called(text: str) -> list[str]:
    """List the sessions that a workflow calls: those of its matrix, and those written behind `nox -s`."""
    matrix = re.search(r"^ +session:\n((?: +- .+\n)+)", text, re.MULTILINE)
    lines = re.findall(r"- (.+)", matrix[1]) if matrix else []
    lines += re.findall(r"nox -s ([^\"$\n]+)$", text, re.MULTILINE)
    return [name for line in lines for name in line.split()]


def list_ci_sessions() -> list[str]:
    """List the sessions that .ci/run calls, the long ones as well."""
    return [name for line in re.findall(r"/?nox .*-s (.+)$", CI, re.MULTILINE) for name in line.split()]


@pytest.mark.parametrize("workflow", WORKFLOWS)
def test_every_session_exists(workflow: str, sessions: dict[str, set[str]]) -> None:
    called = list_called(WORKFLOWS[workflow])
    assert called
    assert set(called) <= sessions.keys() | set().union(*sessions.values())


def test_the_workflow_calls_the_sessions_of_ci(sessions: dict[str, set[str]]) -> None:
    called, needed = set(list_called(CHECKS)), list_ci_sessions()
    assert {"lint", "types", "contracts", "wheel", "long", "tests", "lowest", "newest"} == set(needed)
    for name in needed:
        assert name in called or sessions[name] <= called


def test_the_workflow_has_every_python_and_every_torch(sessions: dict[str, set[str]]) -> None:
    called = set(list_called(CHECKS))
    assert len(sessions["tests"]) >= 5
    assert sessions["tests"] | sessions["torch"] <= called


def test_the_workflow_runs_the_commands_of_the_readme() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    commands = re.findall(r"run: (python3 -m venv .+)$", CHECKS, re.MULTILINE)
    test_command = next(command for command in commands if "pytest" in command)
    assert f"\n{test_command}\n" in readme
    opened = next(command for command in commands if "pytest" not in command)
    before, _, after = opened.partition("torchprof-tui info ")
    assert f"\n{before}torchprof-tui {after}\n" in readme


@pytest.mark.parametrize("workflow", WORKFLOWS)
def test_every_action_is_pinned_by_a_commit(workflow: str) -> None:
    """A tag can be moved to another commit."""
    uses = re.findall(r"uses: (.+)$", WORKFLOWS[workflow], re.MULTILINE)
    assert uses
    for action in uses:
        assert action.startswith("./") or re.fullmatch(r"[\w./-]+@[0-9a-f]{40} # v[0-9.]+", action), action


def test_a_release_needs_all_checks_of_a_commit_on_main() -> None:
    jobs = dict(
        re.findall(r"^  (\w+):\n((?:    .*\n|\n)+)", WORKFLOWS["release.yml"].partition("\njobs:\n")[2], re.MULTILINE)
    )
    assert 'merge-base --is-ancestor "$GITHUB_SHA" origin/main' in jobs["main"]
    needs = {name: re.findall(r"^    needs: (\w+)$", text, re.MULTILINE) for name, text in jobs.items()}
    assert needs == {"main": [], "checks": ["main"], "build": ["checks"], "publish": ["build"], "notes": ["publish"]}
    assert "uses: ./.github/workflows/checks.yml" in jobs["checks"]
    assert "\n  workflow_call:" in CHECKS


def test_commands_run_on_other_systems() -> None:
    assert "system: [macos-latest, windows-latest]" in CHECKS
    assert "tools/try_commands.py" in CHECKS


def test_the_citation_has_the_version() -> None:
    assert f"\nversion: {__version__}\n" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")
