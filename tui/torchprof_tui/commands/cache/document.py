"""The JSON document of `cache --json`."""

from __future__ import annotations

from typing import Annotated

from msgspec import UNSET, UnsetType

from torchprof_tui.commands.common.json_document import Document, about
from torchprof_tui.trace.storage import disk_cache


class CacheDocument(Document, frozen=True, kw_only=True, tag="torchprof-tui/cache/1"):
    """The disk cache of decoded traces: where it is and how full; with `--clear` what was removed."""

    folder: Annotated[str | None, about("folder of the cache; null without a home folder")]
    traces: Annotated[int, about("cached traces")]
    bytes: Annotated[int, about("their size on the disk")]
    limit_bytes: Annotated[int, about("size from which the least recently used are removed")]
    removed: Annotated[int | UnsetType, about("traces that `--clear` removed; only with `--clear`")] = UNSET
    freed_bytes: Annotated[int | UnsetType, about("what they took; only with `--clear`")] = UNSET
    cannot_tell: Annotated[str | UnsetType, about("why there is no cache; left out where there is one")] = UNSET


NO_CACHE = "no home folder, so no cache; TORCHPROF_TUI_CACHE can name a folder for it"


def build_document(removed: int | None = None, freed_bytes: int | None = None) -> CacheDocument:
    """Build the document of the cache as it is now; `removed`, `freed_bytes`: what was just cleared, else None."""
    folder = disk_cache.cache_folder()
    traces, size = disk_cache.cache_usage()
    has_folder = folder != disk_cache.NO_FOLDER
    return CacheDocument(
        folder=str(folder) if has_folder else None,
        traces=traces,
        bytes=size,
        limit_bytes=disk_cache.cache_limit(),
        removed=UNSET if removed is None else removed,
        freed_bytes=UNSET if freed_bytes is None else freed_bytes,
        cannot_tell=UNSET if has_folder else NO_CACHE,
    )
