"""List the traces that the index page of a web server links to, and match patterns against them.

The page comes from an untrusted server: its size, the number of links and pages, and the time are limited, and only
links to files and folders directly below the page count.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from fnmatch import fnmatchcase
from html import unescape
from typing import Any
from urllib.parse import unquote, urljoin, urlsplit

from torchprof_tui.trace.core.errors import TraceError
from torchprof_tui.trace.sources.listing_limits import MAX_LISTING_SECONDS, MAX_NAME_BYTES

MAX_PAGE_BYTES = 8 << 20
"""Bytes of an index page: about 50,000 links."""

MAX_PAGES = 200
"""Index pages that are read for one pattern, whose folders may be patterns too."""

_LINK = re.compile(r"""<a\s[^<>]{0,200}?href\s*=\s*(?:"([^"<>]{1,4096})"|'([^'<>]{1,4096})')""", re.IGNORECASE)

_GLOB_MAGIC = re.compile(r"[*\[]")


def list_links(file_system: Any, page: str, deadline: float | None = None) -> list[str]:
    """Return the addresses directly below a page that it links to, sorted; folders end in `/`. Raises TraceError."""
    deadline = time.monotonic() + MAX_LISTING_SECONDS if deadline is None else deadline
    page = page if page.endswith("/") else f"{page}/"
    text = _read_page(file_system, page, deadline).decode("utf-8", errors="replace")
    links = {link for match in _LINK.finditer(text) if (link := _resolve_link(page, match[1] or match[2]))}
    return sorted(links)


def match_links(file_system: Any, pattern: str) -> list[str]:
    """Return the addresses of the files that match a pattern, sorted. `*` and `[` match within a name."""
    deadline = time.monotonic() + MAX_LISTING_SECONDS
    begin = pattern.index("://") + 3
    scheme, (host, *names) = pattern[:begin], pattern[begin:].split("/")
    folders = [f"{scheme}{host}/"]
    pages = 0
    for index, name in enumerate(names):
        is_last = index == len(names) - 1
        if not _GLOB_MAGIC.search(name):
            folders = [f"{folder}{name}{'' if is_last else '/'}" for folder in folders]
            continue
        found = []
        for folder in folders:
            pages += 1
            if pages > MAX_PAGES:
                raise TraceError(f"{pattern}: matches more than {MAX_PAGES} folders; use a narrower pattern")
            found += [
                link
                for link in list_links(file_system, folder, deadline)
                if link.endswith("/") is not is_last and fnmatchcase(unquote(_last_name(link)), unquote(name))
            ]
        folders = found
    return folders


def _read_page(file_system: Any, page: str, deadline: float) -> bytes:
    text = bytearray()
    with file_system.open(page, "rb", block_size=0) as stream:
        while part := stream.read(1 << 16):
            text += part
            if len(text) > MAX_PAGE_BYTES:
                raise TraceError(f"{page}: the page is longer than {MAX_PAGE_BYTES >> 20} MB; name a trace")
            if time.monotonic() > deadline:
                raise TraceError(f"{page}: the list takes longer than {MAX_LISTING_SECONDS} s; name a trace")
    return bytes(text)


def _resolve_link(page: str, link: str) -> str | None:
    """Return the address of a link, None if it is not directly below the page."""
    link = unescape(link)
    try:
        address = urljoin(page, link)
        parts = urlsplit(address)
    except ValueError:
        return None
    name = address[len(page) :].removesuffix("/")
    decoded = unquote(name)
    if (
        not address.startswith(page)
        or parts.query
        or parts.fragment
        or not decoded.isprintable()
        or "/" in decoded
        or decoded in ("", ".", "..")
        or len(address) > MAX_NAME_BYTES
    ):
        return None
    return address


def _last_name(link: str) -> str:
    return link.removesuffix("/").rpartition("/")[2]


def entries_of(links: list[str]) -> Iterator[dict[str, Any]]:
    """Format addresses as a file system's entries of unknown size."""
    return ({"name": link, "type": "directory" if link.endswith("/") else "file", "size": None} for link in links)
