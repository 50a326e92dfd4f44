"""The checks of what the cheatsheet is about: the part of the trace on screen, the selection, or the whole trace.

They run on worker threads, one after the other; a check of a scope that is no longer wanted is cancelled.
"""

from __future__ import annotations

from enum import Enum
from functools import partial
from typing import TYPE_CHECKING

from torchprof_tui.analysis.patterns.engine import check_scope as scopes
from torchprof_tui.trace.core.time_format import format_time
from torchprof_tui.ui.common.child_screen import cycle
from torchprof_tui.ui.explorer.panels.chain_panel import ChainPanel
from torchprof_tui.ui.explorer.panels.panel import PanelContext
from torchprof_tui.ui.explorer.title_line import VerdictLine

if TYPE_CHECKING:
    from torchprof_tui.analysis.patterns.engine.check_scope import Scope
    from torchprof_tui.analysis.patterns.verdict.latest_check import CheckResult
    from torchprof_tui.analysis.patterns.verdict.verdict import Verdict
    from torchprof_tui.trace.model.ranks import Rank


class ScopeMode(Enum):
    """The part of the trace that the cheatsheet is about."""

    SCREEN = "on screen"
    SELECTION = "selection"
    TRACE = "whole trace"


class ScopeChecks:
    """Request checks of the current scope; keep the last result in `checked`, and pass verdicts to the verdict line.

    `is_ready`: whether the whole trace has been checked, after which any scope is checked quickly.
    """

    def __init__(self, context: PanelContext, chain_panel: ChainPanel) -> None:
        self._context, self._chain_panel = context, chain_panel
        self._view_state, self._trace = context.view_state, context.view_state.trace
        self.verdict_line = VerdictLine(id="verdict")
        self.mode = ScopeMode.SCREEN
        self.is_ready = False
        self.checked: CheckResult | None = None
        self._whole: CheckResult | None = None  # of the whole trace of the rank
        self._rank_index = 0  # the rank that verdict and cheatsheet are about
        self._requested: Scope | None = None
        self._held: Scope | None = None  # that of the findings while the user walks through their evidence

    def start(self) -> None:
        """Check the whole trace."""
        self._rank_index = self._current_rank_index()
        self._check_trace()

    def _check_trace(self) -> None:
        self._context.worker.submit("precompute", partial(self._context.queries.precompute, self._rank_index))

    def _current_rank_index(self) -> int:
        ranks = self._trace.merged_ranks
        return 0 if ranks is None else ranks.index_of_lane(self._view_state.current_rank().header_lane)

    @property
    def rank(self) -> Rank:
        """The rank that the findings are about."""
        return self._trace.all_ranks[self._rank_index]

    @property
    def label(self) -> str:
        """The scope of the last result in words, with its rank where there are several."""
        if self.checked is None:
            return ""
        scope = self.checked.scope
        is_empty = self.mode is ScopeMode.SELECTION and self._view_state.selected < 0
        label = scope.label if scope.is_whole_trace else (ScopeMode.SCREEN if is_empty else self.mode).value
        if scope == self._held and not scope.is_whole_trace:
            step = 10 ** max(len(str(scope.length)) - 3, 0)  # three digits of the length tell both ends apart
            label = f"{format_time(scope.t0, step)} to {format_time(scope.t1, step)}"
        return f"{self.rank.label} {label}".lstrip()

    def cycle_mode(self, direction: int) -> str:
        """Choose the next part of the trace (1), or the previous one (-1). Returns a message."""
        self.mode = cycle(list(ScopeMode), self.mode, direction)
        self._requested = self._held = None
        if self.mode is ScopeMode.SELECTION and self._view_state.selected < 0:
            return "scope of the cheatsheet: selection; nothing is selected, so it shows the screen"
        return f"scope of the cheatsheet: {self.mode.value}"

    def hold(self) -> bool:
        """Keep the scope of the last result while the view follows its evidence. Returns whether that is new."""
        # Else the scope would follow the view to one event, and the evidence elsewhere would be lost.
        if self.checked is None or self.checked.scope == self._held:
            return False
        self._held = self.checked.scope
        return True

    def release(self) -> None:
        """Let the scope follow the view again."""
        if self._held is not None:
            self._held = None
            self.update()

    def update(self) -> bool:
        """Request a check where the scope has changed; of another rank its verdict and lane labels as well.

        Returns whether it is another rank.
        """
        if not self.is_ready:
            return False
        rank_index, before = self._current_rank_index(), self._rank_index
        if rank_index != before:
            self._rank_index, self._requested, self._held = rank_index, None, None
            self._check_trace()
        scope, requested = self._find_scope(), self._requested
        if requested is None or (scope.t0, scope.t1) != (requested.t0, requested.t1):
            self._requested = scope
            self._context.queries.cancel(rank_index)
            self._context.worker.submit("check", partial(self._context.queries.check_scope, rank_index, scope))
        return rank_index != before

    def _find_scope(self) -> Scope:
        if self._held is not None:
            return self._held
        whole = self._context.queries.get_checker(self._rank_index).default_scope
        if self.mode is ScopeMode.TRACE:
            return whole
        state, chain = self._view_state, self._chain_panel.chain
        if self.mode is ScopeMode.SELECTION and state.selected >= 0:
            events = chain.events.tolist() if chain is not None else [state.selected]
            return scopes.selection_scope(self._trace, events)
        t0, t1 = max(state.viewport.t0, whole.t0), min(state.viewport.t1, whole.t1)
        return scopes.range_scope(t0, t1) if (whole.t0, whole.t1) != (t0, t1) and t1 > t0 else whole

    def show_verdict(self, verdict: Verdict, rank_index: int) -> None:
        """Show a verdict on the whole trace, if it is of the current rank."""
        if rank_index == self._rank_index:
            self.verdict_line.set_verdict(verdict, self.rank.label or self._trace.part)

    def take_trace(self, checked: CheckResult, rank_index: int) -> bool:
        """Take the result for the whole trace, and the lane labels found with it. Returns whether `checked` is new."""
        self.is_ready = True
        if self._context.queries.annotations is not None:
            self._context.timeline.set_annotations(*self._context.queries.annotations)
        if rank_index != self._rank_index:
            return False
        late = checked.late_rank
        if late is not None and late.index != rank_index:
            self._context.worker.submit("late rank", partial(self._context.queries.check_late_rank, late.index))
        self._whole = self.checked = self._explain(checked)
        self.show_verdict(self.checked.verdict, rank_index)
        return True

    def _explain(self, checked: CheckResult) -> CheckResult:
        return self._context.queries.explain_late_rank(checked, self._rank_index)

    def take_late_rank(self) -> None:
        """Say in what is shown why another rank is late, now that it has been checked."""
        if self._context.queries.annotations is not None:
            self._context.timeline.set_annotations(*self._context.queries.annotations)
        if self.checked is not None and self._whole is not None:
            self.checked = self._explain(self.checked)
            self.show_verdict(self._explain(self._whole).verdict, self._rank_index)

    def take_scope(self, checked: CheckResult, rank_index: int) -> bool:
        """Take the result for a scope, if it is still wanted. Returns whether `checked` is new."""
        requested, scope = self._requested, checked.scope
        if rank_index != self._rank_index or requested is None:
            return False
        if (scope.t0, scope.t1) != (requested.t0, requested.t1):
            return False
        self.checked = self._explain(checked)
        return True
