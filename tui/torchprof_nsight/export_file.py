"""Read the tables of an SQLite file that `nsys export --type sqlite` wrote, whatever its version.

The file is data of unknown origin: it is opened read-only and immutable, only ordinary tables are read, by statements
that this module writes, and nothing in the file can add to them (views, triggers, virtual tables, functions). Tables
and columns come and go between versions, so both are looked up; a column that is missing reads as NULL.

Time and memory are in proportion to the size of the file. A small one can hold any amount of text all the same: a
column that was added with a long default, or rows that share the pages of one long value. So the rows, the text and the
time of each table are limited, texts are cut as they arrive, and binary values, which no column has, as one byte.
"""

from __future__ import annotations

import os
import sqlite3
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from torchprof_tui.trace.core.errors import NOT_A_TRACE, TraceError, quote_file
from torchprof_tui.trace.core.problems import excerpt

ROWS_PER_FETCH = 10_000

MAX_STRINGS = 20_000_000  # entries of StringIds; one per distinct name, and per NVTX text
MAX_STRING_CHARACTERS = 1 << 30  # characters of all texts that are kept

MIN_ROW_BYTES = 4
"""The shortest row that SQLite stores. A table cannot have more rows than the file has room for, unless its pages refer
to each other again and again."""

_MAX_TEXT_SHARE = 2
"""Bytes of text that are read of one table, at most, by bytes of the file: UTF-8 takes up to 1.5 times UTF-16."""

_STEPS_PER_CHECK = 100_000  # steps of SQLite's machine after which the time is looked at: some ms

_MIN_SECONDS, _SECONDS_PER_BYTE = 10.0, 1e-6
"""CPU time in SQLite for one table, at most. Real tables take a hundredth of a second per MB."""

MAX_TEXT = 16_384  # characters of a name that are kept: the longest names of kernels have some thousands

_SIGNS = ("StringIds", "META_DATA_EXPORT", "TARGET_INFO_SYSTEM_ENV", "CUPTI_ACTIVITY_KIND_RUNTIME", "NVTX_EVENTS")
"""Tables of which every export has some, and other databases none."""

_ALLOWED_ACTIONS = frozenset((sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_PRAGMA))

_MAX_COLUMNS = 2000
_MAX_BYTES_PER_CHARACTER = 4
_MAX_VALUE_BYTES = 1 << 26


class ExportFile:
    """Open export. `damage`: one line for each table whose reading ended early.

    `spec`: the file as the user named it, for messages. Raises TraceError where it is no export of Nsight Systems.
    """

    def __init__(self, spec: str, path: Path) -> None:
        self.spec = spec
        self.damage: list[str] = []
        for suffix in ("-wal", "-journal"):
            beside = Path(f"{path}{suffix}")
            try:
                unfinished = beside.stat().st_size > 0
            except OSError:
                continue
            if unfinished:
                state = f"still being written: {excerpt(beside.name)} holds changes"
                raise TraceError(f"{spec}: an SQLite file that is {state}; wait for nsys, or export it again")
        size = path.stat().st_size
        self._max_rows = size // MIN_ROW_BYTES
        self._max_text_bytes = size * _MAX_TEXT_SHARE
        self._max_seconds = _MIN_SECONDS + size * _SECONDS_PER_BYTE
        self._text_bytes = 0
        uri = f"file:{quote(os.fspath(path.absolute()))}?mode=ro&immutable=1"
        try:
            self._connection = sqlite3.connect(uri, uri=True, check_same_thread=False)
        except sqlite3.Error as error:
            reason = quote_file(f": {excerpt(str(error))}")
            raise TraceError(f"{spec}: an SQLite file that cannot be opened{reason}") from error
        try:
            self._columns = self._read_schema()
        except (sqlite3.Error, UnicodeError, OverflowError) as error:
            self.close()
            reason = quote_file(f": {excerpt(str(error))}")
            raise TraceError(f"{spec}: a damaged SQLite file{reason}") from error
        if not any(sign in self._columns for sign in _SIGNS):
            self.close()
            names = quote_file(f" (tables: {excerpt(', '.join(sorted(self._columns))) or 'none'})")
            raise TraceError(f"{spec}: {NOT_A_TRACE}, but an SQLite database of another program{names}")

    @property
    def tables(self) -> frozenset[str]:
        return frozenset(self._columns)

    def has(self, table: str, *columns: str) -> bool:
        """Tell whether the file has a table with these columns."""
        return set(columns) <= self._columns.get(table, frozenset())

    def fetch(self, table: str, columns: Sequence[str]) -> Iterator[list[tuple[Any, ...]]]:
        """Yield the rows of a table in lists, NULL for columns that it does not have; nothing where there is no table.

        Where the file is damaged, the rows before the damage are yielded and `damage` says so.
        """
        known = self._columns.get(table)
        if known is None:
            return
        # One byte in place of each binary value, which may be long: no other value is as large as x''.
        select = """CASE WHEN "{0}" >= x'' THEN x'00' ELSE "{0}" END"""
        names = ", ".join(select.format(column) if column in known else "NULL" for column in columns)
        count, seconds = 0, 0.0
        self._text_bytes = 0
        try:
            cursor = self._connection.execute(f'SELECT {names} FROM "{table}"')
            while True:
                began = time.thread_time()
                self._limit_time(began + self._max_seconds - seconds)
                rows = cursor.fetchmany(ROWS_PER_FETCH)
                seconds += time.thread_time() - began
                if not rows:
                    break
                count += len(rows)
                if count > self._max_rows:
                    raise sqlite3.DatabaseError("more rows than the file can hold")
                yield rows
        except (sqlite3.Error, OverflowError) as error:
            is_interrupted = isinstance(error, sqlite3.OperationalError) and str(error) == "interrupted"
            reason = "it takes too long" if is_interrupted else excerpt(str(error))
            self.damage.append(f"{table}: after {count:,} rows: {reason}")

    def read_all(self, table: str, columns: Sequence[str], limit: int = 100_000) -> list[tuple[Any, ...]]:
        """Return the rows of a small table, at most about `limit`."""
        rows: list[tuple[Any, ...]] = []
        for part in self.fetch(table, columns):
            rows += part
            if len(rows) >= limit:
                break
        return rows

    def count_rows(self, table: str) -> int:
        """Return the number of rows, as far as they can be read; 0 where there is no table."""
        return sum(map(len, self.fetch(table, ("start",))))

    def read_strings(self) -> dict[int, str]:
        """Return the texts of StringIds by id."""
        strings: dict[int, str] = {}
        characters = 0
        for rows in self.fetch("StringIds", ("id", "value")):
            for number, text in rows:
                if isinstance(number, int) and isinstance(text, str):
                    strings[number] = text[:MAX_TEXT]
                    characters += min(len(text), MAX_TEXT)
            if len(strings) > MAX_STRINGS or characters > MAX_STRING_CHARACTERS:
                self.damage.append(f"StringIds: after {len(strings):,} texts: too many, the others are left out")
                break
        return strings

    def close(self) -> None:
        self._connection.close()

    def _read_schema(self) -> dict[str, frozenset[str]]:
        """Map the ordinary tables to the names of their columns."""
        connection = self._connection
        connection.text_factory = self._decode_text
        if sys.version_info >= (3, 11):
            connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _MAX_VALUE_BYTES)
            connection.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
        connection.execute("PRAGMA trusted_schema = OFF")
        connection.execute("PRAGMA cell_size_check = ON")
        connection.execute("PRAGMA query_only = ON")
        connection.set_authorizer(_authorize)
        self._limit_time(time.thread_time() + self._max_seconds)
        listed = connection.execute("SELECT name, sql FROM sqlite_master WHERE type = 'table'").fetchall()
        columns = {}
        for name, sql in listed:
            is_quotable = isinstance(name, str) and '"' not in name
            if is_quotable and isinstance(sql, str) and sql.upper().startswith("CREATE TABLE"):
                rows = connection.execute(f'PRAGMA table_info("{name}")').fetchmany(_MAX_COLUMNS)
                columns[name] = frozenset(row[1] for row in rows)
        return columns

    def _limit_time(self, end: float) -> None:
        """Interrupt what runs on the connection when the CPU time of the thread reaches `end`."""
        self._connection.set_progress_handler(lambda: time.thread_time() > end, _STEPS_PER_CHECK)

    def _decode_text(self, data: bytes) -> str:
        """Decode a text, cut to MAX_TEXT characters. Raises sqlite3.DataError where the file cannot hold so much."""
        self._text_bytes += len(data)
        if self._text_bytes > self._max_text_bytes:
            raise sqlite3.DataError("more text than the file can hold")
        return data[: MAX_TEXT * _MAX_BYTES_PER_CHARACTER].decode("utf-8", "replace")[:MAX_TEXT]


def _authorize(action: int, first: str | None, second: str | None, database: str | None, source: str | None) -> int:
    """Allow reading tables and counting rows, and nothing that a schema could add (`source` is a view or trigger)."""
    if action == sqlite3.SQLITE_FUNCTION:
        return sqlite3.SQLITE_OK if second == "count" else sqlite3.SQLITE_DENY
    if action == sqlite3.SQLITE_PRAGMA and first != "table_info":
        return sqlite3.SQLITE_DENY
    return sqlite3.SQLITE_OK if action in _ALLOWED_ACTIONS and source is None else sqlite3.SQLITE_DENY
