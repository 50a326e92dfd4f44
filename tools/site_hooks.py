"""Hooks of mkdocs for what differs between the repository and the site; mkdocs.yml names this file.

Pages that live outside docs/ are copied into the site. A relative link to another file of the repository leads to
that file in the public repository, and is a warning (an error with --strict) where there is no such file.
"""

from __future__ import annotations

import logging
import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

log = logging.getLogger("mkdocs.hooks.site")  # a warning fails --strict

ROOT = Path(__file__).resolve().parent.parent

COPIED_PAGES = {
    "benchmarks.md": "benchmarks/report.md",
    "samples.md": "sample_traces/torchprof_samples/README.md",
    "security.md": "SECURITY.md",
    "changelog.md": "CHANGELOG.md",
}
"""Page of the site → file of the repository."""

INDEX_OF_PATTERNS = "patterns/README.md"

_SITE_PAGES = {source: page for page, source in COPIED_PAGES.items()}
_LINK = re.compile(r"(!?\[[^\]]*\]\()([^)\s]+)\)")
_FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
_PATTERN_ROW = re.compile(r"^\| \[([^\]]+)\]\(([^)]+\.md)\)", re.MULTILINE)


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Fill in the pages of the patterns, and drop pages that are not there (yet)."""
    config.nav = _keep_present(config.nav or [], Path(config.docs_dir))
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are copied from outside of docs/."""
    for page, source in COPIED_PAGES.items():
        files.append(File.generated(config, page, content=(ROOT / source).read_text(encoding="utf-8")))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Redirect links out of docs/; code blocks are left as they are."""
    place = page.file.src_uri
    source = COPIED_PAGES.get(place, f"docs/{place}")
    parts, start = [], 0
    for fence in _FENCE.finditer(markdown):
        parts += [_redirect(markdown[start : fence.start()], source, place, config, files), fence[0]]
        start = fence.end()
    parts.append(_redirect(markdown[start:], source, place, config, files))
    return "".join(parts)


def _redirect(text: str, source: str, place: str, config: MkDocsConfig, files: Files) -> str:
    def replace(match: re.Match[str]) -> str:
        target, mark, anchor = match[2].partition("#")
        if not target or re.match(r"[a-z]+:|/", target):
            return match[0]
        path = posixpath.normpath(posixpath.join(posixpath.dirname(source), target))
        inside = _SITE_PAGES.get(path, path.removeprefix("docs/"))
        if (path in _SITE_PAGES or path.startswith("docs/")) and files.get_file_from_path(inside) is not None:
            return f"{match[1]}{posixpath.relpath(inside, posixpath.dirname(place) or '.')}{mark}{anchor})"
        if not (ROOT / path).exists():
            log.warning("%s: %s is no file of the repository", source, match[2])
        kind = "tree" if (ROOT / path).is_dir() else "blob"
        return f"{match[1]}{config.extra['repository']}/{kind}/main/{path}{mark}{anchor})"

    return _LINK.sub(replace, text)


def _keep_present(nav: list[Any], docs: Path) -> list[Any]:
    kept = []
    for entry in nav:
        ((title, target),) = entry.items()
        if isinstance(target, list):
            kept.append({title: _keep_present(target, docs)})
        elif target in COPIED_PAGES:
            kept.append(entry)
        elif (docs / target).exists():
            is_index = target == INDEX_OF_PATTERNS
            kept.append({title: _list_patterns((docs / target).read_text(encoding="utf-8"))} if is_index else entry)
    return kept


def _list_patterns(index: str) -> list[Any]:
    """List the index and, below its headings, one page for each pattern."""
    folder = posixpath.dirname(INDEX_OF_PATTERNS)
    nav: list[Any] = [INDEX_OF_PATTERNS]
    for section in re.split(r"^## ", index, flags=re.MULTILINE)[1:]:
        pages = [{name: f"{folder}/{file}"} for name, file in _PATTERN_ROW.findall(section)]
        if pages:
            nav.append({section.partition("\n")[0]: pages})
    return nav
