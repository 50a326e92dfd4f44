"""Write files completely or not at all, and explain errors of the disk."""

from __future__ import annotations

import contextlib
import errno
import json
import os
from collections.abc import Iterable, Iterator
from typing import Any


def explain_os_error(error: OSError) -> str:
    """Explain why a file could not be written, and what to do."""
    advice = {
        errno.ENOSPC: "the disk is full: free some space, or name another one with -o",
        errno.EDQUOT: "your quota is used up: free some space, or name another disk with -o",
        errno.EFBIG: "the file is larger than the limit (ulimit -f): raise the limit, or record less",
        errno.EACCES: "no permission to write there: name another folder with -o",
        errno.EROFS: "that disk is read-only: name another folder with -o",
    }
    return advice.get(error.errno or 0, error.strerror or str(error))


@contextlib.contextmanager
def remove_on_exit(path: str) -> Iterator[None]:
    """Remove the file at `path` on exit, also after an exception."""
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            os.remove(path)


def write_atomic(path: str, chunks: Iterable[bytes]) -> int:
    """Write `path` completely, or leave it as it was. Returns the size in bytes. Raises OSError."""
    part = f"{path}.part"
    with remove_on_exit(part):
        with open(part, "wb") as file:
            for chunk in chunks:
                file.write(chunk)
        os.replace(part, path)
    return os.path.getsize(path)


def write_json(path: str, facts: dict[str, Any]) -> OSError | None:
    """Write `facts` as JSON, completely or not at all. Returns the error, or None."""
    text = json.dumps(facts, indent=1, default=str) + "\n"
    try:
        write_atomic(path, [text.encode("utf-8", "backslashreplace")])
    except OSError as error:
        return error
    return None
