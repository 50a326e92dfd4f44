"""Answer what a client sends that is no request: the SDK drops it, and the client would wait for ever."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterable, Awaitable, Callable
from typing import Any

import mcp_types as types
from anyio.streams.memory import MemoryObjectSendStream
from mcp.shared.message import SessionMessage
from pydantic import ValidationError

MAX_ID_DIGITS = 18
_NOTIFICATIONS = "notifications/"
"""How the methods of all messages without an id begin."""

_ID = r'"id"\s*:\s*(\d{1,18}|"[^"\\]{0,100}")'
_FIRST_ID = re.compile(rf"\s*\{{[^\[\]{{}}]{{0,200}}?{_ID}")
_LAST_ID = re.compile(rf"{_ID}[^\[\]{{}}]{{0,200}}\}}\s{{0,9}}\Z")
"""The id at either end of a message that is nested too deeply to be parsed."""

_END = 400


async def forward_messages(
    source: AsyncIterable[SessionMessage | Exception],
    server: MemoryObjectSendStream[SessionMessage | Exception],
    answer: Callable[[SessionMessage], Awaitable[None]],
) -> None:
    """Forward what the client sends to the server; answer invalid messages with an error."""
    async with server:
        async for item in source:
            refusal = build_refusal(item)
            if refusal is None:
                await server.send(item)
            else:
                await answer(SessionMessage(refusal))


def build_refusal(item: SessionMessage | Exception) -> types.JSONRPCError | None:
    """Build the error that answers an item of the SDK's stream; None for a valid message and a blank line."""
    if isinstance(item, ValidationError):
        details = item.errors(include_url=False, include_context=False)
        text = next((each["input"] for each in details if each["type"] == "json_invalid"), None)
        if text is None:
            request = next((each["input"] for each in details if isinstance(each["input"], dict)), {})
            return _build_error(request.get("id"), types.INVALID_REQUEST, "not a JSON-RPC request")
        if not text.strip():
            return None
        return _build_error(_find_id(text), types.PARSE_ERROR, details[0]["msg"])
    if isinstance(item, Exception):
        return _build_error(None, types.PARSE_ERROR, "not a JSON-RPC message")
    message = item.message
    # The SDK takes a request whose id is neither an integer nor text for a notification.
    if isinstance(message, types.JSONRPCNotification) and not message.method.startswith(_NOTIFICATIONS):
        return _build_error(None, types.INVALID_REQUEST, f"{message.method[:100]}: a request needs an id")
    return None


def _build_error(found: Any, code: int, line: str) -> types.JSONRPCError:
    is_id = (isinstance(found, int) and not isinstance(found, bool)) or (isinstance(found, str) and found.isprintable())
    error = types.ErrorData(code=code, message=line)
    return types.JSONRPCError(jsonrpc="2.0", id=found if is_id else None, error=error)


def _find_id(text: str) -> Any:
    """Find the id in a message that the SDK cannot parse; None where there is none."""
    try:
        message = json.loads(text, parse_int=_parse_int)
    except RecursionError:
        match = _FIRST_ID.match(text[:_END]) or _LAST_ID.search(text[-_END:])
        return None if match is None else json.loads(match[1])
    except ValueError:
        return None
    return message.get("id") if isinstance(message, dict) else None


def _parse_int(digits: str) -> int | None:
    return int(digits) if len(digits) <= MAX_ID_DIGITS else None
