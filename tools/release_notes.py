"""Print one version's part of CHANGELOG.md, as the notes of its release: `python -m tools.release_notes 1.2.3`."""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

CHANGELOG = Path(__file__).resolve().parents[1] / "CHANGELOG.md"


def select_version(changelog: str, version: str) -> str:
    """Return the text below the heading `## 1.2.3 - 2026-01-31` or `## 1.2.3 (not yet released)`. Raises KeyError."""
    parts = re.split(r"^## (\S+).*\n", changelog, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))[version].strip()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("version", help="a version in CHANGELOG.md")
    version = parser.parse_args().version
    try:
        print(select_version(CHANGELOG.read_text(encoding="utf-8"), version))
    except KeyError:
        print(f"CHANGELOG.md has no heading for {version}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
