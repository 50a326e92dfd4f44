"""Cut text to a width in terminal cells.

Apart from `name_display`, because it is needed for the first frame and kernel names are not.
"""

from __future__ import annotations

from rich.cells import cell_len, get_character_cell_size


def truncate(text: str, width: int) -> str:
    """At most `width` cells of cleaned text, ending in `…` where something is missing."""
    if width <= 0:
        return ""
    if cell_len(text) <= width:
        return text
    kept, used = [], 0
    for character in text:
        used += get_character_cell_size(character)
        if used > width - 1:
            break
        kept.append(character)
    return "".join(kept) + "…"
