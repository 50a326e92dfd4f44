"""Leave out the painting of frames that no test looks at: a quarter of the time of tests of screens."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from textual._compositor import Compositor
from textual._context import active_app, visible_screen_stack


@contextmanager
def unseen_frames() -> Iterator[None]:
    """Paint no frame of an app without a terminal, which textual paints and throws away.

    Tests that look at a screen paint it as it is then: `render_strips`, pictures and `render_lines` work as before.
    """
    render = Compositor.render_update

    def forget_or_render(compositor: Compositor, full: bool = False, *which: Any, **how: Any) -> Any:
        app = active_app.get(None)
        if full or app is None or not app.is_headless:
            return render(compositor, full, *which, **how)
        visible_screen_stack.set(how.get("screen_stack") or [])
        compositor._dirty_regions.clear()
        return None

    Compositor.render_update = forget_or_render  # type: ignore[method-assign]
    yield
    Compositor.render_update = render  # type: ignore[method-assign]
