"""An app that delivers each key to the screen and the widget that earlier keys lead to, and has help on every screen.

textual sends a key to the widget that has the focus when the key arrives, and looks for its binding only after that
widget has had it. Keys that arrive together, as over ssh or from a paste, all go to the first widget: in `t/gemm` the
slash would open a prompt below the table, and "gemm" would be four commands. A key without a use says why.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping
from functools import partial
from weakref import WeakKeyDictionary, ref

from textual import events
from textual.app import App
from textual.binding import Binding
from textual.command import CommandPalette, DiscoveryHit, Hit, Hits, Provider
from textual.css.query import NoMatches
from textual.notifications import Notify
from textual.screen import Screen
from textual.widget import Widget
from textual.widgets._toast import ToastRack
from textual.worker import WorkerFailed

from torchprof_tui.ui.common import keys
from torchprof_tui.ui.common.bindings import KeyHelp, group_by_section, normalize_keys
from torchprof_tui.ui.common.guarded_screen import GuardedCommandPalette, GuardedScreen, GuardingApp, repair_textual

_NAMED_KEYS = {"left", "right", "up", "down", "home", "end", "pageup", "pagedown", "enter", "escape", "backspace"}

_NAMED_KEYS |= {"tab", "shift+tab", "ctrl+c", "ctrl+r"}
"""Keys without a character that a user may try; others, such as shift alone, are reported by some terminals."""

_LANE_BINDINGS = [binding for binding in Binding.make_bindings(keys.LANES) if binding.description]


class OrderedKeysApp(App[None]):
    """Forward a key once more where a binding of an earlier key has moved the focus since it was forwarded."""

    def __init__(self) -> None:
        super().__init__()
        self.remapped_keys: dict[str, str] = {}  # by binding id, as in the configuration file
        self._handled_keys = 0
        self._reason = ""  # why the latest key did nothing
        self._forwarded: WeakKeyDictionary[events.Key, tuple[ref[Widget], int]] = WeakKeyDictionary()
        """By key: the widget that it went to, and how many keys had been handled by then; -1: it was not mounted.

        A weak reference: a handler may hold a key for long, and the widget leads to a removed screen and its trace.
        """

    async def on_event(self, event: events.Event) -> None:
        if self._exit and isinstance(event, events.InputEvent):
            return  # textual mounts nothing any more, so a screen that a key opened now would lack its parts
        if isinstance(event, events.Key) and not event.is_forwarded:
            self._remember_target(event)
        await super().on_event(event)

    def _handle_exception(self, error: Exception) -> None:
        cause = error.error if isinstance(error, WorkerFailed) else error
        if not (self._exit and isinstance(cause, NoMatches)):  # a screen that was opened just before the end
            super()._handle_exception(error)

    async def on_key(self, event: events.Key) -> None:
        """Handle a key that no widget has stopped: by its binding, or forward it once more."""
        event.prevent_default()  # textual's own handler
        reference, handled_before = self._forwarded.get(event, (None, self._handled_keys))
        target = None if reference is None else reference()
        # A screen that had no focus yet when the key arrived, as just after it was opened, may have it now.
        is_late = isinstance(target, Screen) and self.focused is not None
        if target is (self.focused or self.screen) or (handled_before == self._handled_keys and not is_late):
            self._handled_keys += 1
            if isinstance(self.screen, GuardedScreen) and self.screen.keep_key(event):
                return
            if not await self._check_bindings(event.key):
                self.say(explain_unbound_key(event, self.remapped_keys))
            return
        again = events.Key(event.key, event.character)
        target = self._remember_target(again)
        if not await self._check_bindings(again.key, priority=True):
            target._forward_event(again)

    def say(self, reason: str) -> None:
        """Show for a moment why a key does nothing, in place of earlier messages."""
        if reason:
            self._reason = reason
            self.notify(reason, timeout=3, markup=False)

    def on_notify(self, event: Notify) -> None:
        """Clear the earlier messages before a reason is shown: of keys that came at once none has been shown yet."""
        if event.notification.message == self._reason:
            self._notifications.clear()
        self.call_later(self._remove_cleared)

    def _remove_cleared(self) -> None:
        """Remove what textual keeps of messages that were cleared: their holders."""
        kept = {ToastRack._toast_id(each) for each in self._notifications}
        for holder in self.screen.query("ToastHolder") if self.screen_stack else ():
            if holder.id not in kept:
                holder.remove()

    def action_focus_next(self) -> None:
        self._move_focus(self.screen.focus_next)

    def action_focus_previous(self) -> None:
        self._move_focus(self.screen.focus_previous)

    def _move_focus(self, move: Callable[[], object]) -> None:
        before = self.focused
        move()
        if self.focused is before:
            self.say("tab: there is only one part here")

    def _remember_target(self, event: events.Key) -> Widget:
        target = self.focused or self.screen
        self._forwarded[event] = (ref(target), self._handled_keys if target.is_mounted else -1)
        return target


def explain_unbound_key(event: events.Key, keymap: Mapping[str, str]) -> str:
    """Return why a key that is not bound on this screen does nothing; "" for keys that nobody means to press.

    `keymap`: the user's keys by binding id.
    """
    if not event.is_printable and event.key not in _NAMED_KEYS:
        return ""
    name = event.character if event.is_printable and event.character and event.character != " " else event.key
    labels = {
        key: each.description for each in _LANE_BINDINGS for key in normalize_keys(keymap.get(each.id or "", each.key))
    }
    label = labels.get(event.key)
    return f"{name} ({label}) works only on the lanes" if label else f"{name} has no use here"


class ScreenCommands(Provider):
    """Provide a command for each active binding of the screen, of its focused widget and of the app."""

    async def discover(self) -> Hits:
        for text, key in self._commands():
            yield DiscoveryHit(text, self._runner(key), help=_describe_keys(key))

    async def search(self, query: str) -> Hits:
        matcher = self.matcher(query)
        for text, key in self._commands():
            score = matcher.match(text)
            if score > 0:
                yield Hit(score, matcher.highlight(text), self._runner(key), help=_describe_keys(key))

    def _commands(self) -> Iterator[tuple[str, KeyHelp]]:
        for title, listed in group_by_section(self.screen.active_bindings.values()).items():
            for key in listed:
                yield f"{title}: {key.description}", key
        for key in (*getattr(self.screen, "KEYLESS_COMMANDS", ()), *getattr(self.app, "KEYLESS_COMMANDS", ())):
            yield key.description, key

    def _runner(self, key: KeyHelp) -> Callable[[], Awaitable[bool]]:
        """Return what runs the action: an app's key acts on the app, not on the screen."""
        return partial(self.app.run_action, key.action, self.screen if key.namespace is None else key.namespace)


def _describe_keys(key: KeyHelp) -> str:
    return f"key: {key.keys}" if key.keys else "no key"


repair_textual()


class HelpApp(GuardingApp):
    """An app whose screens all have the same help (`?`, F1) and a command palette with all their keys (ctrl+p).

    A screen may have an attribute `help_topic`, its guide or the name of it, and `KEYLESS_COMMANDS`.
    """

    COMMANDS = GuardingApp.COMMANDS | {ScreenCommands}
    BINDINGS = keys.EVERYWHERE

    def action_command_palette(self) -> None:
        """Show the command palette, unless it is open below the help."""
        if any(isinstance(screen, CommandPalette) for screen in self.screen_stack):
            self.notify("the command palette is open already: esc closes the help above it", timeout=3, markup=False)
        else:
            self.push_screen(GuardedCommandPalette())

    async def action_help(self) -> None:
        """Show the help of the current screen; on the help itself, close it."""
        # deferred: imported after the first frame
        from torchprof_tui.ui.common.help_screen import HelpScreen

        if isinstance(self.screen, HelpScreen):
            self.screen.dismiss()
        else:
            described = [screen for screen in self.screen_stack if not isinstance(screen, CommandPalette)]
            self.push_screen(HelpScreen(described[-1]))  # the palette has no keys of its own
