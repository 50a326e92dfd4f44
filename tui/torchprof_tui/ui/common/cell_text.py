"""Cut text to a width in terminal cells.

A module of its own, because the first frame needs it and must not import `name_display`, which decodes kernel names.
"""

from __future__ import annotations

from rich.cells import cell_len, get_character_cell_size


def truncate(text: str, width: int) -> str:
    """Cut cleaned text to at most `width` cells, ending in `…` if something is cut off."""
    if width <= 0:
        return ""
    if cell_len(text) <= width:
        return text
    characters, used = [], 0
    for character in text:
        used += get_character_cell_size(character)
        if used > width - 1:
            break
        characters.append(character)
    return "".join(characters) + "…"
