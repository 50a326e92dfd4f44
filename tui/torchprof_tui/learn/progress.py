"""Which cases were worked through: a small JSON file in the user's state folder. Losing it is harmless."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path
from typing import Annotated

from msgspec import Meta, Struct, json

from torchprof_tui.trace.core.errors import UnreadableFileError
from torchprof_tui.trace.core.typed_json import Count, Seconds, Text, read_typed_file
from torchprof_tui.trace.core.user_files import create_state_folder, find_state_folder, replace_file

FILE_NAME = "learn.json"
MAX_BYTES = 1 << 20
MAX_CASES = 2_000


class Result(Struct, frozen=True):
    """The best result of a case: answers as expected, of how many, and when (Unix seconds)."""

    right: Count
    of: Count
    at: Seconds

    def __str__(self) -> str:
        return f"{self.right} of {self.of}"


ProgressFile = Annotated[dict[Text, Result], Meta(max_length=MAX_CASES)]


def find_progress_file() -> Path | None:
    """Return the path of the file; None if there is no home folder."""
    folder = find_state_folder()
    return None if folder is None else folder / FILE_NAME


def read_progress() -> tuple[dict[str, Result], str]:
    """Read the results by the id of the case, and one line about a file that cannot be read, else ""."""
    path = find_progress_file()
    if path is None:
        return {}, ""
    try:
        return read_typed_file(path, ProgressFile, MAX_BYTES), ""
    except FileNotFoundError:
        return {}, ""
    except (UnreadableFileError, OSError) as error:
        reason = str(error) if isinstance(error, UnreadableFileError) else f"{FILE_NAME}: {error.strerror or error}"
        return {}, f"{reason}; the progress in it is lost, and is replaced after the next case"


def note_result(case: str, right: int, of: int) -> None:
    """Keep the best result of a case. A folder that cannot be written to is ignored."""
    results, _ = read_progress()
    earlier = results.get(case)
    if earlier is not None and earlier.of == of and earlier.right > right:
        return
    results = {case: Result(right, of, max(time.time(), 0.0)), **{key: results[key] for key in results if key != case}}
    with contextlib.suppress(OSError):
        create_state_folder()
        path = find_progress_file()
        if path is not None:
            replace_file(path, json.encode(dict(list(results.items())[:MAX_CASES])), mode=0o600)
