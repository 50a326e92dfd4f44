"""The kernel panel: the GPU work at the end of the chain, with its footprint, occupancy limits and other runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torchprof_tui.trace.model.trace import Trace
from torchprof_tui.ui.common.name_display import clean
from torchprof_tui.ui.common.text_panel import Lines, wrap_text
from torchprof_tui.ui.explorer.panels.event_title import format_title
from torchprof_tui.ui.explorer.panels.kernel_text import format_kernel
from torchprof_tui.ui.explorer.panels.panel import Panel

if TYPE_CHECKING:
    from torchprof_tui.analysis.dispatch.chain import Chain
    from torchprof_tui.analysis.kernel.kernel_summary import KernelSummary
    from torchprof_tui.ui.explorer.event_reading import ChainRead


LOW_PANEL_HEIGHT = 8
"""Panel height below which the occupancy comes before the launch."""


class KernelPanel(Panel):
    """Show the kernel that the selected event leads to."""

    NAME = "kernel"

    def __init__(self, trace: Trace) -> None:
        super().__init__()
        self._trace = trace
        self._event = -1
        self._kernel: KernelSummary | None = None
        self._chain: Chain | None = None

    def update(self) -> None:
        event = self.context.view_state.selected
        if event != self._event:
            self._event = event
            self._kernel, self._chain = None, None
            self.refresh_content()

    def on_chain_read(self, message: ChainRead) -> None:
        if message.chain.event == self._event:
            self._chain, self._kernel = message.chain, message.kernel
            self.refresh_content(top=False)

    def enter(self) -> str | None:
        if self._event < 0:
            return "no kernel to go to: no event is selected: select a kernel, or an op"
        if self._chain is not None and self._kernel is None:
            return "no kernel to go to: this event leads to no GPU work"
        return None

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
