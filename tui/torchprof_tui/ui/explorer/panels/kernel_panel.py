"""The kernel panel: the GPU work at the end of the chain, with its footprint, occupancy limits and other runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torchprof_tui.trace.model.trace import Trace
from torchprof_tui.ui.common.name_display import clean
from torchprof_tui.ui.common.text_panel import Lines, TextPanel, wrap_text
from torchprof_tui.ui.explorer.panels.event_title import format_title
from torchprof_tui.ui.explorer.panels.kernel_text import format_kernel

if TYPE_CHECKING:
    from torchprof_tui.analysis.dispatch.chain import Chain
    from torchprof_tui.analysis.kernel.kernel_summary import KernelSummary


LOW_PANEL_HEIGHT = 8
"""Panel height below which the occupancy comes before the launch."""


class KernelPanel(TextPanel):
    """Show the kernel of an event: call `show_event`, then `set_chain` once its chain is computed."""

    def __init__(self, trace: Trace, *, id: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id)
        self._trace = trace
        self._event = -1
        self._kernel: KernelSummary | None = None
        self._chain: Chain | None = None

    def show_event(self, event: int) -> None:
        """Set the selected event, -1 for none."""
        if event != self._event:
            self._event = event
            self._kernel, self._chain = None, None
            self.refresh_content()

    def set_chain(self, chain: Chain, kernel: KernelSummary | None) -> None:
        """Set the chain of the selected event and the kernel at its end, None without GPU work."""
        self._chain, self._kernel = chain, kernel
        self.refresh_content(top=False)

    @property
    def missing_reason(self) -> str:
        """Why the panel shows no kernel, in a line; "" where it shows one, or its chain is being computed."""
        if self._event < 0:
            return "no event is selected: select a kernel, or an op"
        return "this event leads to no GPU work" if self._chain is not None and self._kernel is None else ""

    def content(self, width: int) -> Lines:
        palette = self.palette
        if self._event < 0:
            return wrap_text(
                "No event is selected. Select a kernel, or an op to see its longest kernel.", width, palette.muted
            )
        if self._chain is None:
            return [[("…", palette.muted)]]
        if self._kernel is None:
            name = clean(self._trace.event(self._event).name)
            return wrap_text(f"{name} launched no GPU work in this trace.", width, palette.muted)
        head = format_title(self._trace, self._trace.event(self._kernel.event), self.palette, width)
        if self._kernel.event != self._event and len(self._chain.work) > 1:
            head += wrap_text(
                f"the longest of {len(self._chain.work):,} pieces of GPU work launched below it:", width, palette.muted
            )
        return head + format_kernel(self._kernel, palette, width, is_low=self.size.height < LOW_PANEL_HEIGHT)
