"""Check that CI runs exactly the test command of the README, and that its links work on the package index."""

from __future__ import annotations

import re

import pytest

from tests.helpers.paths import ROOT

README = (ROOT / "README.md").read_text(encoding="utf-8")
REPOSITORY = "https://github.com/torchprof-tui/torchprof-tui"
RAW = "https://raw.githubusercontent.com/torchprof-tui/torchprof-tui/main"
LINKS = re.findall(r"\]\(([^)]+)\)", README)


def test_ci_runs_the_test_command_of_the_readme() -> None:
    install = ".venv/bin/pip install -q -c constraints.txt -e . --group dev"
    line = f"python3 -m venv --upgrade-deps .venv && {install} && .venv/bin/pytest"
    assert f"\n{line}\n" in README
    assert f"\n{line}\n" in (ROOT / ".ci" / "run").read_text(encoding="utf-8")


def test_test_needs_are_not_published() -> None:
    """Extras are for users; the test command brings no torch, whose Linux build brings gigabytes of CUDA."""
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    extras = text.partition("[project.optional-dependencies]")[2].partition("\n[")[0]
    names = set(re.findall(r"^(\w+) = ", extras, re.MULTILINE))
    assert (
        {"remote", "s3", "gcs", "fleet"} <= names <= {"remote", "s3", "gcs", "fleet", "arrow", "mcp", "pictures", "run"}
    )
    dev = text.partition("\ndev = [")[2].partition("\n]")[0]
    assert "pytest" in dev
    assert "torch" not in dev


@pytest.mark.parametrize("link", LINKS)
def test_a_link_leads_to_a_file_of_this_repository(link: str) -> None:
    """Written in full: the package index shows the README, too, and has none of the files beside it."""
    place = link.removeprefix(f"{REPOSITORY}/blob/main/").removeprefix(f"{REPOSITORY}/tree/main/")
    place = place.removeprefix(f"{RAW}/")
    assert place != link, f"write {REPOSITORY}/blob/main/{link}, for a picture {RAW}/{link}"
    assert (ROOT / place.partition("#")[0]).exists()


def test_pictures_are_raw_files() -> None:
    pictures = re.findall(r"!\[[^\]]+\]\(([^)]+)\)", README)
    assert len(pictures) >= 6
    assert all(picture.startswith(f"{RAW}/docs/") for picture in pictures)
