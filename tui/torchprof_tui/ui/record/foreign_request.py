"""What the form shows about a request that this user did not make, before it may be started.

The threat is described in `runs.request_signature`. The notice is built from the form, so it describes what enter
starts: nothing that it does not show is run.
"""

from __future__ import annotations

import os
import shlex
import unicodedata
from collections.abc import Mapping

from textual.content import Content

from torchprof_tui.runs.recording_request import RecordingRequest, RequestError
from torchprof_tui.ui.common.name_display import clean

NOTICE = (
    "Not started: this request was not made on this machine, or was changed or moved. Read it, then enter starts it."
)

MAX_SHOWN = 320
"""Characters of each fact that are shown: a command of this length and the form fit on 24 lines."""

MAX_FORM_TEXT = 20_000
"""Characters of a command that the form takes."""

_UNREADABLE = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
"""Unicode categories that are drawn as nothing, reorder what is drawn, or act on the terminal."""


def find_form_problem(request: RecordingRequest, cwd: str) -> str | None:
    """Return why a request cannot be shown in the form exactly as it would run; None if it can."""
    words = (*request.command, *request.options, request.python or "", request.output, cwd)
    if any(unicodedata.category(character) in _UNREADABLE for word in words for character in word):
        return "it holds characters that cannot be shown"
    if sum(map(len, words)) > MAX_FORM_TEXT:
        return "it is too long to be shown"
    return None


def describe_foreign_request(
    request: RecordingRequest, cwd: str, file: str, environment: Mapping[str, str] | None
) -> Content:
    """Describe what the form would start: command, interpreter, folder and environment, and the request's file."""
    try:
        interpreter = request.argv(environment)[0]
    except (RequestError, OSError) as error:
        interpreter = str(error)
    facts = (
        ("command", shlex.join(request.command)),
        ("interpreter", interpreter),
        ("options", shlex.join(request.options) or "none"),
        ("folder", cwd),
        ("output", os.path.join(cwd, request.output)),
        ("environment", "yours as it is here; the request sets no variables"),
        ("file", file),
    )
    lines = [Content.assemble((f"\n{name:<12}", "$text-muted"), _shorten(clean(value))) for name, value in facts]
    return Content.assemble((NOTICE, "$warning bold"), *lines)


def _shorten(text: str) -> str:
    if len(text) <= MAX_SHOWN:
        return text
    return f"{text[:MAX_SHOWN]} … and {len(text) - MAX_SHOWN:,} characters that are not shown: read the file first"
