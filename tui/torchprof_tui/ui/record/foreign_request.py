"""What the form shows about a request that this user did not make, before it may be started.

The threat is described in `runs.request_signature`. The notice is built from the form, so it describes what enter
starts: nothing that it does not show is run.
"""

from __future__ import annotations

import os
import shlex
import unicodedata
from collections.abc import Mapping

from rich.cells import cell_len, chop_cells
from textual.content import Content

from torchprof_tui.runs.recording_request import RecordingRequest, RequestError
from torchprof_tui.ui.common.name_display import clean

NOTICE = "Not started: this request comes from another machine, or was changed or moved. Read it; enter starts it."

MAX_SHOWN = 480  # cells of all facts together that are shown in full; notice and input then fit on 24 lines of 80 cells
MAX_COMMAND, MAX_FACT = 230, 60
"""Cells of command or file, and of any other fact, beyond MAX_SHOWN: no long fact moves another off the screen."""

MAX_FORM_TEXT = 20_000  # characters of a command that the form takes

_UNREADABLE = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
"""Unicode categories that are drawn as nothing, reorder what is drawn, or act on the terminal."""


def find_form_problem(request: RecordingRequest, cwd: str) -> str | None:
    """Return why a request cannot be shown in the form exactly as it would run; None if it can."""
    words = (*request.command, *request.options, request.python or "", request.output, cwd)
    if any(unicodedata.category(character) in _UNREADABLE for word in words for character in word):
        return "it contains characters that cannot be shown"
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
        ("environment", "unchanged: the request sets no variables"),
        ("file", file),
    )
    shows_all = sum(cell_len(value) for _, value in facts) <= MAX_SHOWN
    lines = []
    for name, value in facts:
        limit = MAX_SHOWN if shows_all else MAX_COMMAND if name in ("command", "file") else MAX_FACT
        lines.append(Content.assemble((f"\n{name:<12}", "$text-muted"), _shorten(clean(value), limit)))
    return Content.assemble((NOTICE, "$warning bold"), *lines)


def _shorten(text: str, limit: int) -> str:
    if cell_len(text) <= limit:
        return text
    head = chop_cells(text, limit)[0]
    return f"{head} … {len(text) - len(head):,} characters more: read the file"
