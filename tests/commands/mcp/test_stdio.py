"""A session over stdio, as an agent's program starts it; and what is said without the extra."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
from importlib.metadata import requires
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.helpers.command_line import read_error_line, run_program
from tests.helpers.long_run import keep_some
from tests.helpers.mcp_sessions import mcp, server


async def test_a_session_over_stdio(tmp_path: Path) -> None:
    parameters = mcp.StdioServerParameters(
        command=sys.executable, args=["-m", "torchprof_tui", "mcp", str(tmp_path)], env=dict(os.environ)
    )
    # By default it is what sys.stderr was when mcp was imported: in a test whose output was captured, perhaps.
    async with mcp.Client(mcp.stdio_client(parameters, errlog=sys.__stderr__)) as client:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert list(tools) == list(server.collect_tools())
        for tool in tools.values():
            assert tool.input_schema["type"] == "object"
            assert "max_tokens" in tool.input_schema["properties"]
            assert all("description" in each for each in tool.input_schema["properties"].values())
        result = await client.call_tool("overview", {"trace": "sample:train_gpt_2ranks"})
        assert not result.is_error
        assert json.loads(result.content[0].text)["ranks"]  # type: ignore[union-attr]
        failed = await client.call_tool("overview", {"trace": "/etc/passwd"})
        assert failed.is_error
        (tmp_path / ".env").write_text("TOKEN=a_secret\n")
        for tool in ("overview", "snapshot"):
            refused = (await client.call_tool(tool, {"trace": str(tmp_path / ".env")})).content[0].text  # type: ignore[union-attr]
            assert "not a trace, but text" in refused
            assert "a_secret" not in refused
        shown = await client.call_tool(
            "snapshot", {"trace": "sample:matmul_add_64_cold_eager", "view": "table", "size": "100x30"}
        )
        assert not shown.is_error
        text = shown.content[0].text  # type: ignore[union-attr]
        assert text.startswith("command: torchprof-tui snapshot sample:matmul_add_64_cold_eager ")
        assert "aten::" in text


INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}},
}
DEEP = b"[" * 100_000 + b"]" * 100_000


def _call(arguments: bytes, number: bytes = b"7") -> bytes:
    parameters = b'{"name": "overview", "arguments": %b}' % arguments
    return b'{"jsonrpc": "2.0", "id": %b, "method": "tools/call", "params": %b}' % (number, parameters)


INVALID = (
    (_call(rb'{"trace": "\ud800"}'), 7),
    (_call(b'{"trace": "x", "max_tokens": %b}' % (b"9" * 5000)), 7),
    (_call(b'{"trace": %b}' % DEEP), 7),
    (b'{"method": "tools/call", "params": {"id": 3, "x": %b}, "jsonrpc": "2.0", "id": "a"}' % DEEP, "a"),
    (_call(rb'{"trace": "x"}', rb'"\ud800"'), None),
    (_call(rb'{"trace": "x"}', b"1.5"), None),
    (b"no json", None),
    (b"[1, 2]", None),
    (b'{"jsonrpc": "2.0", "id": 8, "method": 7}', 8),
    (b'{"id": 9, "method": "ping"}', 9),
    (b'{"jsonrpc": "2.0", "id": 10, "method": "tools/call", "params": [1]}', 10),
    (b"a" * 10_000_000, None),
)


@pytest.mark.long
def test_every_invalid_message_is_answered(tmp_path: Path) -> None:
    messages = [
        json.dumps(INITIALIZE).encode(),
        b'{"jsonrpc": "2.0", "method": "notifications/initialized"}',
        b"",
        *(text for text, _ in INVALID),
    ]
    done = run_program("mcp", tmp_path, input=b"\n".join((*messages, b"")), text=False)
    assert done.returncode == 0
    first, *refused = [json.loads(line) for line in done.stdout.splitlines()]
    assert first["result"]["serverInfo"]["name"] == "torchprof-tui"
    assert [each["id"] for each in refused] == [number for _, number in INVALID]
    assert all(each["error"]["message"].isprintable() for each in refused)


def test_a_folder_that_is_none_is_an_error(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert "no such folder" in read_error_line(capsys, "mcp", tmp_path / "missing")


def _list_packages_of_the_extra() -> list[str]:
    """List what the server imports beside the program, the standard library and what every installation has."""
    spec = find_spec("torchprof_tui.commands.mcp.server")  # without importing it
    assert spec is not None
    assert spec.origin is not None
    tree = ast.parse(Path(spec.origin).read_text(encoding="utf-8"))
    names = {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    names |= {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    required = {re.split(r"[^\w-]", each)[0] for each in requires("torchprof-tui") or () if "extra ==" not in each}
    found = {name.partition(".")[0] for name in names} - sys.stdlib_module_names - required
    return sorted(name for name in found if not name.startswith("torchprof"))


@pytest.mark.long
@pytest.mark.parametrize(
    "hidden", keep_some([[name] for name in _list_packages_of_the_extra()] + [["mcp", "mcp_types", "anyio"]], 1)
)
def test_without_a_package_of_the_extra_its_name_is_said(hidden: list[str]) -> None:
    block = f"import sys; sys.modules.update(dict.fromkeys({hidden!r})); "
    code = f"{block}from torchprof_tui.cli import main; sys.exit(main(['mcp']))"
    done = subprocess.run(
        [sys.executable, "-c", code], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert done.stderr.startswith("torchprof-tui: mcp needs the extra mcp (")
    assert done.stderr.endswith('): pip install "torchprof-tui[mcp]"\n')
    assert done.stderr.count("\n") == 1
