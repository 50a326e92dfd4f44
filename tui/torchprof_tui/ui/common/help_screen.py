"""The help of every screen: its keys from its bindings, a guide to what it shows, the lanes' legend, and the words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from rich.cells import cell_len
from textual import events
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.screen import Screen
from textual.strip import Strip
from textual.widgets import Input

from torchprof_tui.analysis.words.dictionary import Word, find_kind_word, find_word, load_words, to_phrase
from torchprof_tui.trace.core.records import record
from torchprof_tui.trace.model.event_kind import Kind
from torchprof_tui.ui.common import keys
from torchprof_tui.ui.common.bindings import group_by_section
from torchprof_tui.ui.common.cell_text import truncate
from torchprof_tui.ui.common.event_styles import KIND_NAMES, Palette
from torchprof_tui.ui.common.guarded_screen import GuardedModalScreen, ScrollActions
from torchprof_tui.ui.common.guides import GUIDES, Guide
from torchprof_tui.ui.common.painted_widget import (
    Lines,
    PaintedWidget,
    TextPanel,
    TextRun,
    build_strip,
    join_columns,
    palette_for,
    wrap_text,
)
from torchprof_tui.ui.common.panel_dock import PanelPicked

LANE_SYMBOLS = (
    ("▏aten::mm", "a bar is one event; ▏ marks its start"),
    ("█▉ ▍", "an event too narrow for a name; the width of ▍ is its share of the cell"),
    ("░ ▒ ▓", "a cell with many events; it is busy for under ⅓, under ⅔, or more of its time"),
    ("▶aten::mm ◆", "▶ the selected event; ◆ an event of its chain, or evidence of a finding"),
    ("╰┄┄▏", "the link from a launch to its GPU work; ▶ ▼ at an edge: it continues off screen"),
    ("‹dispatch›", "why the GPU was idle: what the CPU did during the gap"),
    ("● at a lane", "the lane has evidence of the cheatsheet's finding; red: a problem of 2 % of the time or more"),
    ("[▂▃▁]", "on the overview: the part of the trace on screen"),
    ("▼", "on the ruler: the time at which w and s zoom"),
    ("▾ ▸ ▴", "a lane or rank unfolded, folded; a lane pinned"),
    ("rank 0 71 %", "how much of its time the GPUs of the rank are busy"),
)

KINDS_SHOWN = tuple(kind for kind in KIND_NAMES if Kind.STEP <= kind <= Kind.OVERHEAD)


TWO_COLUMN_WIDTH = 100
COLUMN_GAP = 4
MAX_LABEL_SHARE = 3  # a label takes at most this part (a third) of a column; a longer one is on a line of its own


@record
class HelpEntry:
    """A label (keys, a symbol, a word), its text, and where it is shown. `kind`: the colour of the label."""

    label: str
    text: str
    where: str = ""
    kind: Kind | None = None

    @property
    def shown_label(self) -> str:
        """The label with nine number keys as one; the filter finds each of them."""
        return self.label.replace("1 2 3 4 5 6 7 8 9", "1 … 9")


@record
class HelpSection:
    """Entries under a title. `is_keys`: the labels are keys. `is_from_words`: they are on the page of words, too."""

    title: str
    entries: tuple[HelpEntry, ...]
    is_keys: bool = False
    is_from_words: bool = False


def list_guide_sections(guide: Guide) -> list[HelpSection]:
    """List the lines of a guide, then its words."""
    sections = [HelpSection(guide.title, tuple(HelpEntry(label, text) for label, text in guide.lines))]
    words = tuple(HelpEntry(term, find_word(term).sentence) for term in guide.terms)
    return [*sections, HelpSection("Words on this panel", words, is_from_words=True)] if words else sections


def list_lane_sections() -> list[HelpSection]:
    """List the symbols on the lanes and the kinds of events by colour."""
    symbols = tuple(HelpEntry(symbol, meaning) for symbol, meaning in LANE_SYMBOLS)
    kinds = tuple(HelpEntry(f" {KIND_NAMES[kind]} ", find_kind_word(kind).sentence, kind=kind) for kind in KINDS_SHOWN)
    return [HelpSection("How to read the lanes", symbols), HelpSection("Colours", kinds)]


def list_word_sections() -> list[HelpSection]:
    entries = []
    for word in load_words():  # its facts in one paragraph, then its other names and where it is shown
        facts = [word.sentence, word.why, f"Costs: {to_phrase(word.costs)}." if word.costs else ""]
        entries.append(HelpEntry(", ".join((word.term, *word.also)), " ".join(filter(None, facts)), _list_places(word)))
    return [HelpSection("Words", tuple(entries))]


def list_event_sections(word: Word) -> list[HelpSection]:
    """List what the word of the selected event says, fact by fact."""
    facts = (("is", word.sentence), ("why", word.why), ("costs", word.costs), ("where", _list_places(word)))
    entries = tuple(HelpEntry(label, text) for label, text in facts if text)
    return [HelpSection(f"The selected event: {word.term}", entries, is_from_words=True)]


def _list_places(word: Word) -> str:
    patterns = f"cheatsheet (c): {', '.join(word.patterns)}" if word.patterns else ""
    return "; ".join(filter(None, (word.where, patterns)))


def filter_sections(sections: Sequence[HelpSection], query: str) -> list[HelpSection]:
    """Keep the entries that match; a text of one character matches only keys and symbols that contain it.

    An entry matches where its label is the query, or where label or text contain it, in small or capital letters.
    """
    kept = []
    for section in sections:
        entries = tuple(entry for entry in section.entries if _matches(entry, query))
        if entries:
            kept.append(replace(section, entries=entries))
    return kept


def _matches(entry: HelpEntry, query: str) -> bool:
    if len(query) == 1:
        return query in entry.label.split() or query == entry.label
    folded = query.casefold()
    return any(folded in text.casefold() for text in (entry.label, entry.text, entry.where))


def format_sections(sections: Sequence[HelpSection], width: int, palette: Palette) -> Lines:
    """Lay sections out below each other, or in two columns from TWO_COLUMN_WIDTH cells on."""
    if width < TWO_COLUMN_WIDTH:
        return _join_blocks([_format_section(section, width, palette) for section in sections])
    column = (width - COLUMN_GAP) // 2
    if len(sections) == 1:
        sections = _halve(sections[0], column, palette)
    blocks = [_format_section(section, column, palette) for section in sections]
    split = _find_split([len(block) for block in blocks])
    left, right = _join_blocks(blocks[:split]), _join_blocks(blocks[split:])
    return join_columns(left, right, column + COLUMN_GAP, palette.text)


def _halve(section: HelpSection, width: int, palette: Palette) -> list[HelpSection]:
    """Divide a section for two columns that have about the same height."""
    if len(section.entries) < 3:
        return [section]
    indent = _measure_indent(section, width)
    middle = _find_split(
        [len(_format_entry(entry, section.is_keys, indent, width, palette)) for entry in section.entries]
    )
    first, second = section.entries[:middle], section.entries[middle:]
    return [replace(section, entries=first), replace(section, title=f"{section.title}, continued", entries=second)]


def _find_split(heights: Sequence[int]) -> int:
    """Find the number of blocks in the left column for which the taller column is lowest."""
    splits = range(1, len(heights) + 1)
    return min(splits, key=lambda split: (max(sum(heights[:split]), sum(heights[split:])), split), default=0)


def _join_blocks(blocks: Sequence[Lines]) -> Lines:
    lines: Lines = []
    for block in blocks:
        lines += [[], *block] if lines else block
    return lines


def _measure_indent(section: HelpSection, width: int) -> int:
    longest = max((cell_len(entry.shown_label) for entry in section.entries), default=0)
    return min(longest, max(width // MAX_LABEL_SHARE, 8)) + 2


def _format_section(section: HelpSection, width: int, palette: Palette) -> Lines:
    indent = _measure_indent(section, width)
    lines: Lines = [[(truncate(section.title, width), palette.strong)]]
    for entry in section.entries:
        lines += _format_entry(entry, section.is_keys, indent, width, palette)
    return lines


def _format_entry(entry: HelpEntry, is_key: bool, indent: int, width: int, palette: Palette) -> Lines:
    style = palette.fill(entry.kind) if entry.kind is not None else palette.key if is_key else palette.strong
    text = f"{entry.text} [{entry.where}]" if entry.where else entry.text
    wrapped = wrap_text(text, max(width - indent, 8), palette.text)
    used = cell_len(entry.shown_label)
    lines: Lines = []
    if used + 2 > indent:  # a label wider than its column has lines of its own
        lines += wrap_text(entry.shown_label, width, style)
        used, label = 0, (" " * indent, palette.text)
    else:
        label = (entry.shown_label, style)
    gap = [(" " * (indent - used), palette.text)] if used else []
    lines.append([label, *gap, *wrapped[0]])
    lines += [[(" " * indent, palette.text), *runs] for runs in wrapped[1:]]
    return lines


KEYS, LANES, WORDS = "Keys", "Lanes", "Words"
FILTER_HINT = "type to filter · esc closes"


class HelpTabs(PaintedWidget):
    """Paint the titles of the pages; post `PanelPicked` for a click."""

    def __init__(self, pages: Sequence[str]) -> None:
        super().__init__(id="help-tabs")
        self._pages = pages
        self._active = pages[0]

    def show_active(self, page: str) -> None:
        """Mark the page of this title; "" for none, while a filter goes through all pages."""
        self._active = page
        self.repaint()

    def paint(self, y: int, width: int) -> Strip:
        palette = self.palette
        runs: list[TextRun] = [(" ", palette.text)]
        for page in self._pages:
            is_active = page == self._active
            runs.append((f"[{page}]" if is_active else f" {page} ", palette.active if is_active else palette.muted))
        return build_strip(runs, width, palette.text)

    def on_click(self, event: events.Click) -> None:
        event.stop()
        column = 1
        for page in self._pages:
            if column <= event.x < column + len(page) + 2:
                self.post_message(PanelPicked(page))
                return
            column += len(page) + 2


class HelpText(TextPanel):
    """One page of the help, or the entries of all pages that match a filter."""

    _query = ""

    def __init__(self, pages: Mapping[str, Sequence[HelpSection]]) -> None:
        super().__init__(id="help-text")
        self._pages = pages
        self._page = next(iter(pages))

    def show_page(self, page: str) -> None:
        self._page = page
        self.refresh_content()

    def set_filter(self, query: str) -> None:
        """List the matching entries of all pages; "" shows the page again."""
        self._query = query.strip()
        self.refresh_content()

    def content(self, width: int) -> Lines:
        if not self._query:
            return format_sections(self._pages[self._page], width, self.palette)
        # Words beside a guide or an event stand on the page of all words, too: list an entry once.
        sections = [section for page in self._pages.values() for section in page if not section.is_from_words]
        matching = filter_sections(sections, self._query)
        if not matching:
            return wrap_text(f"no match for {self._query!r}: esc shows everything", width, self.palette.strong)
        return format_sections(matching, width, self.palette)


class HelpScreen(ScrollActions, GuardedModalScreen[None]):
    """Help over a screen, with its `help_topic`, a guide or the name of one: a panel's, before the keys, or its own.

    `help_word` of the screen: the word that explains what is selected, shown first.
    """

    CSS_PATH = "help_screen.tcss"
    TITLE = "help"
    BINDINGS = keys.HELP
    AUTO_FOCUS = ""

    def __init__(self, screen: Screen[object]) -> None:
        super().__init__()
        topic, word = getattr(screen, "help_topic", ""), getattr(screen, "help_word", None)
        guide, has_lanes = topic if isinstance(topic, Guide) else GUIDES.get(topic), screen.TITLE == "explorer"
        event_sections = [] if word is None else list_event_sections(word)
        guide_sections = [] if guide is None else list_guide_sections(guide)
        key_sections = [
            HelpSection(title, tuple(HelpEntry(key.keys, key.description) for key in group), is_keys=True)
            for title, group in group_by_section(screen.active_bindings.values()).items()
        ]
        # Who asks on a panel of the lanes asks what it shows; on another screen, which keys it has.
        asked = [*guide_sections, *key_sections] if has_lanes else [*key_sections, *guide_sections]
        pages = {KEYS: [*event_sections, *asked]}
        if has_lanes:
            pages[LANES] = list_lane_sections()
        pages[WORDS] = list_word_sections()
        self._page_titles = list(pages)
        self._page = KEYS
        self._tabs, self._text = HelpTabs(self._page_titles), HelpText(pages)
        self._tabs.palette = self._text.palette = palette_for(screen.app)
        self._filter = Input(placeholder=FILTER_HINT, id="help-filter", compact=True, select_on_focus=False)

    def compose(self) -> ComposeResult:
        with Vertical(id="help") as box:
            box.border_title = "torchprof-tui help"
            box.border_subtitle = "tab next page · ↑ ↓ scroll"
            yield from (self._filter, self._tabs, self._text)

    def on_panel_picked(self, message: PanelPicked) -> None:
        self._show_page(message.panel)

    def on_input_changed(self, message: Input.Changed) -> None:
        self._text.set_filter(message.value)
        self._tabs.show_active("" if message.value.strip() else self._page)

    def on_key(self, event: events.Key) -> None:
        """Start the filter with the first character that is typed; the other keys of this screen are not letters."""
        if event.is_printable and event.character and event.character not in "q? /" and not self._filter.has_focus:
            event.stop()
            self.action_type_filter(event.character)

    def action_type_filter(self, start: str) -> None:
        self.set_focus(self._filter)  # at once, unlike Widget.focus: the next key must reach the input
        self._filter.insert_text_at_cursor(start)

    def action_back(self) -> None:
        if self._filter.value or self._filter.has_focus:
            self._filter.value = ""
            self.set_focus(None)
        else:
            self.dismiss()

    def action_next_panel(self, distance: int) -> None:
        index = self._page_titles.index(self._page) + distance
        self._show_page(self._page_titles[index % len(self._page_titles)])

    def _show_page(self, page: str) -> None:
        self._page = page
        self._filter.value = ""
        self._tabs.show_active(page)
        self._text.show_page(page)
