"""Ask the MCP server in this process, as a client of the SDK does, and read its answers."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from tests.helpers.later_imports import LaterModule
from torchprof_tui.commands.mcp.answers import Answerer

mcp = LaterModule("mcp")
server = LaterModule("torchprof_tui.commands.mcp.server")


class Session:
    """A server for some folders, which is asked one question after the other in a session of its own each."""

    def __init__(self, folders: Sequence[object]) -> None:
        self.answerer = Answerer([str(folder) for folder in folders])
        self._server = server.create_server(self.answerer)

    async def call(self, tool: str, **arguments: Any) -> tuple[str, bool]:
        """Call a tool; return its text and whether it is an error."""
        async with mcp.Client(self._server) as client:
            result = await client.call_tool(tool, arguments)
        (content,) = result.content
        assert content.type == "text"
        return content.text, bool(result.is_error)

    async def ask(self, tool: str, **arguments: Any) -> dict[str, Any]:
        """Call a tool, which must succeed; return its JSON."""
        text, is_error = await self.call(tool, **arguments)
        assert not is_error, text
        answer: dict[str, Any] = json.loads(text)
        return answer

    async def read_error(self, tool: str, **arguments: Any) -> str:
        """Call a tool, which must fail with one line."""
        text, is_error = await self.call(tool, **arguments)
        assert is_error, text
        assert "\n" not in text
        assert "bug" not in text
        return text
