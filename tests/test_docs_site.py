"""The pages of docs/: their commands parse, their keys are the program's, and they build into a site on its own."""

from __future__ import annotations

import importlib.util
import re
import shlex
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

from tests.helpers.paths import ROOT
from tools import keys_page
from torchprof_tui.commands.common.errors import UsageError
from torchprof_tui.commands.common.parsers import COMMANDS, build_parser
from torchprof_tui.trace.core.extensions import list_command_names
from torchprof_tui.ui.all_bindings import find_bindings

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]

OTHER_PAGES = [ROOT / name for name in ("CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md", "benchmarks/report.md")]

_BLOCK = re.compile(r"^```[a-z]*\n(.*?)^```", re.MULTILINE | re.DOTALL)
_HOST = re.compile(r"(?:https?:)?//")
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#+\s+(.*?)\s*$", re.MULTILINE)


def list_commands(text: str) -> list[str]:
    """List the calls of the program in the code blocks of a page, up to a pipe, a redirection or another command."""
    lines = (line for block in _BLOCK.findall(text) for line in block.splitlines())
    calls = [line.removeprefix("$ ") for line in lines]
    return [re.split(r" [|>&] | >> | && |; ", line)[0] for line in calls if re.match(r"torchprof-tui( |$)", line)]


def parse_command(line: str) -> None:
    """Parse a call without running it; raises UsageError."""
    words = shlex.split(line, comments=True)[1:]
    name, rest = (words[0], words[1:]) if words and words[0] in (*COMMANDS, *list_command_names()) else ("open", words)
    build_parser(name).parse_args(rest)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_the_commands_of_a_page_parse(page: Path) -> None:
    for line in list_commands(page.read_text(encoding="utf-8")):
        parse_command(line)


def test_a_wrong_command_is_found() -> None:
    text = "```\ntorchprof-tui check a.json --fail-of x  # no such option\n```\n"
    (line,) = list_commands(text)
    with pytest.raises(UsageError, match="--fail-on"):
        parse_command(line)


def test_many_commands_are_found() -> None:
    assert sum(len(list_commands(page.read_text(encoding="utf-8"))) for page in PAGES) > 100


def test_the_keys_page_is_up_to_date() -> None:
    assert keys_page.PAGE.read_text(encoding="utf-8") == keys_page.build_page(), "run: python -m tools.keys_page"
    assert find_bindings().keys() == keys_page.SCREENS.keys() | {"Prompt", "PathInput"}  # the keys of text inputs


def make_anchor(heading: str) -> str:
    """Make the anchor of a heading as the site and the public repository do."""
    text = re.sub(r"`|\*|\[([^\]]*)\]\([^)]*\)", lambda link: link[1] or "", heading)
    return re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", text).strip().lower())


def list_wrong_links(page: Path) -> list[str]:
    """List the relative links of a page that lead to no file, or to no heading of one."""
    wrong = []
    for link in _LINK.findall(_BLOCK.sub("", page.read_text(encoding="utf-8"))):
        name, _, anchor = link.partition("#")
        target = page.parent / name if name else page
        if re.match("[a-z]+:", link):
            continue
        text = target.read_text(encoding="utf-8") if target.suffix == ".md" and target.exists() else ""
        anchors = {make_anchor(heading) for heading in _HEADING.findall(_BLOCK.sub("", text))}
        if not target.exists() or (anchor and text and anchor not in anchors):
            wrong.append(link)
    return wrong


@pytest.mark.parametrize("page", [*PAGES, *OTHER_PAGES], ids=lambda page: page.relative_to(ROOT).as_posix())
def test_the_links_of_a_page_lead_somewhere(page: Path) -> None:
    """The build of the site says the same of its pages, in 20 s, in the long run."""
    assert list_wrong_links(page) == []


def test_a_wrong_link_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# One\n\n[a](#one) [b](#two) [c](page.md#one) [d](none.md)\n```\n[e](code.md)\n```\n")
    assert list_wrong_links(page) == ["#two", "none.md"]


class _Requests(HTMLParser):
    """Collect what a browser loads on its own: scripts, styles, fonts and pictures, but no links and no canonical."""

    def __init__(self) -> None:
        super().__init__()
        self.addresses: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        if tag == "link" and values.get("rel") != "canonical":
            self.addresses.append(values.get("href") or "")
        elif tag != "a":
            self.addresses.append(values.get("src") or "")
        if values.get("data-md-component") == "source":  # the theme's script asks the repository's host for stars
            self.addresses.append(values.get("href") or "")


needs_builder = pytest.mark.skipif(
    importlib.util.find_spec("material") is None, reason="no mkdocs-material here: group docs"
)


def build_site(folder: Path, site: Path) -> subprocess.CompletedProcess[str]:
    """Build the site whose mkdocs.yml is in `folder`."""
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(site)]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300)


@pytest.mark.long
@needs_builder
@pytest.mark.parametrize("link", ["index.md#nothing", "nowhere.md", "../tools/nothing.py", "nothing.svg"])
def test_a_wrong_link_stops_the_build(link: str, tmp_path: Path) -> None:
    (tmp_path / "mkdocs.yml").write_text((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
    (tmp_path / "tools").symlink_to(ROOT / "tools")
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "index.md").write_text(f"# Start\n\n[a page]({link})\n")
    built = build_site(tmp_path, tmp_path / "site")
    assert built.returncode == 1
    assert link.rpartition("#")[2] in built.stderr


@pytest.mark.long
@needs_builder
def test_the_site_builds_and_loads_nothing_from_elsewhere(tmp_path: Path) -> None:
    built = build_site(ROOT, tmp_path / "site")
    assert built.returncode == 0, built.stderr
    pages = list((tmp_path / "site").rglob("*.html"))
    assert len(pages) > 80
    for page in pages:
        requests = _Requests()
        requests.feed(page.read_text(encoding="utf-8"))
        assert not [address for address in requests.addresses if _HOST.match(address)], page
    for name in ("keys", "benchmarks", "tasks/idle-gpu", "patterns/idle-gap"):
        assert (tmp_path / "site" / name / "index.html").exists(), name
    styles = "".join(path.read_text(encoding="utf-8") for path in (tmp_path / "site").rglob("*.css"))
    assert not re.findall(r"(?:@import|url\()\s*['\"]?(?:https?:)?//", styles)
