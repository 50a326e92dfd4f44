"""Tests of the release notes: one version's part of the changelog."""

from __future__ import annotations

import pytest

from tests.helpers.paths import ROOT
from tools.release_notes import select_version

CHANGELOG = """# Changelog

Introduction.

## Unreleased

### Added

- Three.

## 0.2.0 - 2026-12-01

- Two.

### Fixed

- Half.

## 0.1.0 - 2026-11-01

- One.
"""


def test_a_version_has_the_text_up_to_the_next_one() -> None:
    assert select_version(CHANGELOG, "0.2.0") == "- Two.\n\n### Fixed\n\n- Half."
    assert select_version(CHANGELOG, "0.1.0") == "- One."
    assert select_version(CHANGELOG, "Unreleased") == "### Added\n\n- Three."


def test_a_version_without_a_heading_is_an_error() -> None:
    with pytest.raises(KeyError):
        select_version(CHANGELOG, "0.3.0")


def test_the_changelog_has_this_form() -> None:
    assert "### Added" in select_version((ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), "0.2.0")
