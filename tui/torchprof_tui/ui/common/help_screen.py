"""The help of every screen: its keys from its bindings, a guide to what it shows, the lanes' legend, and the words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from textual import events
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.message import Message
from textual.screen import Screen
from textual.strip import Strip
from textual.widgets import Input

from torchprof_tui.ui.common import keys
from torchprof_tui.ui.common.event_styles import Palette
from torchprof_tui.ui.common.guarded_screen import GuardedModalScreen
from torchprof_tui.ui.common.help.guides import GUIDES, Guide
from torchprof_tui.ui.common.help.help_sections import (
    GUIDE_WORDS_TITLE,
    HelpSection,
    filter_sections,
    format_sections,
    list_guide_sections,
    list_key_sections,
    list_lane_sections,
    list_word_sections,
)
from torchprof_tui.ui.common.help.key_listing import KeyHelp, group_by_section
from torchprof_tui.ui.common.painted_widget import PaintedWidget, TextRun, build_strip
from torchprof_tui.ui.common.terminal_info import palette_for
from torchprof_tui.ui.common.text_panel import Lines, TextPanel, wrap_text

KEYS, LANES, WORDS = "Keys", "Lanes", "Words"
FILTER_HINT = "type to filter · esc closes"


class HelpTabs(PaintedWidget):
    """Paint the titles of the pages; post `Picked` for a click."""

    class Picked(Message):
        """A page was clicked."""

        def __init__(self, page: str) -> None:
            super().__init__()
            self.page = page

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
                self.post_message(self.Picked(page))
                return
            column += len(page) + 2


class HelpText(TextPanel):
    """One page of the help, or the entries of all pages that match a filter."""

    def __init__(self, pages: Mapping[str, Sequence[HelpSection]]) -> None:
        super().__init__(id="help-text")
        self._pages = pages
        self._page = next(iter(pages))
        self._query = ""

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
        # The words of a panel's guide stand in the glossary as well: list an entry once.
        sections = [section for page in self._pages.values() for section in page if section.title != GUIDE_WORDS_TITLE]
        matching = filter_sections(sections, self._query)
        if not matching:
            return wrap_text(f"no match for {self._query!r}: esc shows everything", width, self.palette.warning)
        return format_sections(matching, width, self.palette)


class HelpScreen(GuardedModalScreen[None]):
    """Help over the current screen. `keys`: its keys by section.

    `guide`: of the panel or screen, shown before the keys for a panel. `has_lanes`: show the lanes' legend.
    """

    CSS_PATH = "help_screen.tcss"
    TITLE = "help"
    BINDINGS = keys.HELP
    AUTO_FOCUS = ""

    def __init__(
        self,
        keys: Mapping[str, Sequence[KeyHelp]],
        palette: Palette,
        guide: Guide | None = None,
        has_lanes: bool = False,
    ) -> None:
        super().__init__()
        guide_sections = [] if guide is None else list_guide_sections(guide)
        key_sections = list_key_sections(keys)
        # Who asks on a panel of the lanes asks what it shows; on another screen, which keys it has.
        pages = {KEYS: [*guide_sections, *key_sections] if has_lanes else [*key_sections, *guide_sections]}
        if has_lanes:
            pages[LANES] = list_lane_sections()
        pages[WORDS] = list_word_sections()
        self._page_titles = list(pages)
        self._page = KEYS
        self._tabs, self._text = HelpTabs(self._page_titles), HelpText(pages)
        self._tabs.palette = self._text.palette = palette
        self._filter = Input(placeholder=FILTER_HINT, id="help-filter", compact=True, select_on_focus=False)

    @classmethod
    def for_screen(cls, screen: Screen[object]) -> HelpScreen:
        """Create the help of a screen, whose `help_topic` is a guide, or the name of one: a panel's or its own."""
        keys = group_by_section(screen.active_bindings.values())
        topic = getattr(screen, "help_topic", "")
        guide = topic if isinstance(topic, Guide) else GUIDES.get(topic)
        return cls(keys, palette_for(screen.app), guide, has_lanes=screen.TITLE == "explorer")

    def compose(self) -> ComposeResult:
        with Vertical(id="help") as box:
            box.border_title = "torchprof-tui help"
            box.border_subtitle = "tab next page · ↑ ↓ scroll"
            yield self._filter
            yield self._tabs
            yield self._text

    def on_help_tabs_picked(self, message: HelpTabs.Picked) -> None:
        self._show_page(message.page)

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

    def action_cycle_page(self, distance: int) -> None:
        index = self._page_titles.index(self._page) + distance
        self._show_page(self._page_titles[index % len(self._page_titles)])

    def _show_page(self, page: str) -> None:
        self._page = page
        self._filter.value = ""
        self._tabs.show_active(page)
        self._text.show_page(page)

    def action_scroll(self, lines: int) -> None:
        self._text.scroll_lines(lines)

    def action_page(self, pages: int) -> None:
        self._text.scroll_lines(pages * max(1, self._text.size.height - 1))
