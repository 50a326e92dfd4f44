"""Sign requests, so that only a command of this user's own is repeated at one key.

Threat: a folder with a trace comes from somebody else (an archive, a bucket, a shared disk, a bug report) and holds a
`request.json`. Its command, interpreter and folder are the other person's choice. If the key `r` started it, opening a
trace and pressing one key would run foreign code with the user's rights.

Protection: when this program starts a run, it stores the request beside the traces with a signature: an HMAC-SHA256
over the file's bytes and the folder's real path, with a random key that only this user can read
(`request.key` in the state folder, mode 0600). A request is the user's own only if its signature matches. One that
another person wrote, one that was edited in any byte, and one that was copied or moved to another folder are not: the
form shows the command, and the user starts it. So does a request that was made while no key could be stored (a
read-only state folder, no home folder).

Not covered: somebody who can write to the user's own state folder can run commands as the user anyway; and the files
that a command names, such as `train.py`, are not signed.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import os
import re
import secrets
import stat

from torchprof_tui.trace.core.user_files import create_state_folder, find_state_folder, replace_file

KEY_FILE = "request.key"
KEY_BYTES = 32

_PURPOSE = b"torchprof-tui request 1"  # a key never signs two kinds of data that could be confused
_FIRST_LINE = re.compile(rb'\{"signature": "([0-9a-f]{64})",\n')


def add_signature(document: bytes, folder: str) -> bytes:
    """Add a signature as the first line of a JSON object, for the file in `folder`; unchanged if there is no key."""
    key = _read_key()
    if key is None:  # none yet, or one that cannot be used
        with contextlib.suppress(OSError):
            replace_file(create_state_folder() / KEY_FILE, secrets.token_bytes(KEY_BYTES), mode=0o600)
            key = _read_key()  # as it is on disk: another process may have created one at the same time
    if key is None or not document.startswith(b"{"):
        return document
    signed = document[1:]
    return b'{"signature": "%s",\n%s' % (_sign(key, signed, folder).encode(), signed)


def is_signed_by_user(document: bytes, folder: str) -> bool:
    """Return whether `document`, read from `folder`, was written there by this user with `add_signature`."""
    first_line = _FIRST_LINE.match(document)
    key = _read_key()
    if first_line is None or key is None:
        return False
    expected = _sign(key, document[first_line.end() :], folder)
    return hmac.compare_digest(first_line[1], expected.encode())


def _sign(key: bytes, signed: bytes, folder: str) -> str:
    place = os.fsencode(os.path.realpath(folder))
    return hmac.new(key, b"\0".join((_PURPOSE, place, signed)), hashlib.sha256).hexdigest()


def _read_key() -> bytes | None:
    """Read the key; None if there is none, or one that another user may have read or written."""
    folder = find_state_folder()
    if folder is None:
        return None
    try:
        descriptor = os.open(folder / KEY_FILE, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            status = os.fstat(descriptor)
            is_private = stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid() and not status.st_mode & 0o077
            key = os.read(descriptor, KEY_BYTES + 1) if is_private else b""
        finally:
            os.close(descriptor)
    except OSError:
        return None
    return key if len(key) == KEY_BYTES else None
