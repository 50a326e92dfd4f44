"""Write text to a terminal or file whose encoding lacks some characters, such as Latin-1 or ASCII.

Standard library only: imported before the command is known.
"""

from __future__ import annotations

import codecs
import sys

SUBSTITUTES = str.maketrans("µμ…·•–—−→←×│─█▌░", "uu.-----><x|-##.")
"""Characters that the program prints often, each with one ASCII character, so that columns stay aligned."""

_HANDLER = "torchprof_tui.substitute"


def tolerate_encoding() -> None:
    """Substitute what stdout and stderr cannot encode, where they are not UTF-8; Python raises UnicodeEncodeError."""
    codecs.register_error(_HANDLER, _substitute)
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None and not (stream.encoding or "").lower().replace("-", "").startswith("utf"):
            reconfigure(errors=_HANDLER)


def _substitute(error: UnicodeError) -> tuple[str, int]:
    """Return the substitute of the characters that cannot be encoded, and where to go on."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    text = error.object[error.start : error.end].translate(SUBSTITUTES)
    return "".join(c if c.isascii() else "?" for c in text), error.end
