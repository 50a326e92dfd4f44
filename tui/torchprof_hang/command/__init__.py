"""Declare the options of `torchprof-tui hang`."""

from __future__ import annotations

from torchprof_tui.commands.common.options import AsJson, Number, ScreenOptions, option

DEFAULT_COLLECTIVES = 12  # collectives of each group that the answer has by default


class HangOptions(ScreenOptions):
    command_name = "hang"
    description = (
        "Find which rank of a job that hangs did not come to a collective, and at which line. Reads what the job left: "
        "dumps of torch's flight recorder (pickles and JSON), stacks of py-spy and faulthandler, NCCL's RAS output and "
        "logs, mixed; the files of run --watch-hang are all of these. In a terminal as a screen, in a pipe as text."
    )

    source: tuple[str, ...] = option(
        "a folder, a pattern or files: local, host:path or a URL; with --live the hosts", "SOURCE", is_positional=True
    )
    live: bool = option(
        "take the stacks of the ranks that run now on these hosts (localhost: this one): with py-spy where it is "
        "installed, else of ranks that run --watch-hang started",
        default=False,
    )
    trace: str | None = option(
        "traces of the ranks from before the hang, for fleet: was that rank late before?", "FOLDER", default=None
    )
    json: AsJson = False
    top: int = option(
        f"collectives of each group (default: {DEFAULT_COLLECTIVES})",
        "N",
        number=Number("a number from 1 on", 1, 99_999),
        default=DEFAULT_COLLECTIVES,
    )
