"""A session over stdio, as an agent's program starts it; and what is said without the extra."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import mcp
import pytest

from tests.helpers.command_line import read_error_line, run_program
from torchprof_tui.commands.mcp.server import TOOLS


async def test_a_session_over_stdio(tmp_path: Path) -> None:
    server = mcp.StdioServerParameters(
        command=sys.executable, args=["-m", "torchprof_tui", "mcp", str(tmp_path)], env=dict(os.environ)
    )
    async with mcp.Client(server) as client:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert list(tools) == list(TOOLS)
        for tool in tools.values():
            assert tool.input_schema["type"] == "object"
            assert "max_tokens" in tool.input_schema["properties"]
            assert all("description" in each for each in tool.input_schema["properties"].values())
        result = await client.call_tool("overview", {"trace": "sample:train_gpt_2ranks"})
        assert not result.is_error
        assert json.loads(result.content[0].text)["ranks"]  # type: ignore[union-attr]
        failed = await client.call_tool("overview", {"trace": "/etc/passwd"})
        assert failed.is_error
        shown = await client.call_tool(
            "snapshot", {"trace": "sample:matmul_add_64_cold_eager", "view": "table", "size": "100x30"}
        )
        assert not shown.is_error
        text = shown.content[0].text  # type: ignore[union-attr]
        assert text.startswith("command: torchprof-tui snapshot sample:matmul_add_64_cold_eager ")
        assert "aten::" in text


def test_stdout_has_nothing_but_the_protocol(tmp_path: Path) -> None:
    first = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "initialize",
        "params": {
            "protocolVersion": "2025-06-18",
            "capabilities": {},
            "clientInfo": {"name": "test", "version": "1"},
        },
    }
    done = run_program("mcp", tmp_path, stdin=None, input=f"{json.dumps(first)}\nno json\n")
    assert done.returncode == 0
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert lines[0]["result"]["serverInfo"]["name"] == "torchprof-tui"
    assert all(line["jsonrpc"] == "2.0" for line in lines)


def test_a_folder_that_is_none_is_an_error(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert "no such folder" in read_error_line(capsys, "mcp", tmp_path / "missing")


def test_without_the_extra_its_name_is_said(tmp_path: Path) -> None:
    block = "import sys; sys.modules['mcp'] = sys.modules['mcp_types'] = None; "
    code = f"{block}from torchprof_tui.cli import main; sys.exit(main(['mcp']))"
    done = subprocess.run(
        [sys.executable, "-c", code], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert done.stderr == 'torchprof-tui: an MCP server needs the extra mcp: pip install "torchprof-tui[mcp]"\n'
