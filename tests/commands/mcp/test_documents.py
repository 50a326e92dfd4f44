"""The page and the skill file about the server name the tools that exist, and nothing else."""

from __future__ import annotations

import re

from tests.helpers.mcp_sessions import server
from tests.helpers.paths import ROOT
from torchprof_tui.commands.mcp.questions import DEFAULT_TOKENS

PAGE = (ROOT / "docs" / "agents.md").read_text(encoding="utf-8")
SKILL = (ROOT / "docs" / "skill" / "SKILL.md").read_text(encoding="utf-8")


def test_the_page_lists_all_tools() -> None:
    assert re.findall(r"^\| `(\w+)` \|", PAGE, re.MULTILINE) == list(server.collect_tools())
    assert f"{DEFAULT_TOKENS:,}" in PAGE


def test_the_skill_has_a_header_and_names_arguments_that_exist() -> None:
    header = SKILL.split("---")[1]
    assert re.search(r"^name: [a-z-]+$", header, re.MULTILINE)
    assert len(re.search(r"^description: (.+)$", header, re.MULTILINE)[1]) < 1024  # type: ignore[index]
    named = {name for tool in server.collect_tools().values() for name in tool.question.__struct_fields__}
    used = set(re.findall(r"\b(\w+)=\w", SKILL))
    assert used
    assert used <= named
