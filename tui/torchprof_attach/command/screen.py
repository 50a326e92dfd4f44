"""The app of `torchprof-tui attach` in a terminal: the list of jobs, above it the explorer of recorded traces."""

from __future__ import annotations

import importlib
from pathlib import Path

from torchprof_attach.command import AttachOptions
from torchprof_attach.command.main import FOLDER, NEXT_TIME, NEXT_TIME_HANG
from torchprof_attach.hosts import LOCAL
from torchprof_attach.session import Session
from torchprof_attach.ui.attach_screen import AttachScreen
from torchprof_tui.app import ListApp
from torchprof_tui.commands.common.errors import UsageError
from torchprof_tui.commands.common.terminal import run_app
from torchprof_tui.trace.core.printable import clean
from torchprof_tui.trace.sources.ssh_connections import SshConnections


class AttachApp(ListApp):
    """An app whose lowest screen lists running jobs."""

    def on_attach_screen_traces_asked(self, message: AttachScreen.TracesAsked) -> None:
        """Open what was recorded, above the list."""
        self.say(clean(f"opening {Path(message.paths[0]).name}"))
        self._open(*message.paths)

    def on_attach_screen_hang_asked(self, message: AttachScreen.HangAsked) -> None:
        """Show which rank did not come, above the list."""
        # an extension of its own
        read = importlib.import_module("torchprof_hang.command.files").read_evidence
        build = importlib.import_module("torchprof_hang.answers").build_hang
        limit = importlib.import_module("torchprof_hang.command").DEFAULT_COLLECTIVES
        screen = importlib.import_module("torchprof_hang.ui.hang_screen")
        try:
            evidence = read([str(message.folder)])
        except UsageError as error:
            self.say(clean(str(error)))
            return
        self.push_screen(screen.HangScreen(evidence, build(evidence, limit)))


def open_screen(options: AttachOptions, session: Session, connections: SshConnections) -> int:
    """Show the jobs of the session's hosts; hosts where ssh may ask are connected before the screen."""
    is_remote = any(name != LOCAL for name in session.names)
    if is_remote:
        session.connect(connections, allow_prompt=True)
    folder = Path(options.output or FOLDER).expanduser()
    connect = (lambda: None) if is_remote else session.connect
    app = AttachApp(
        AttachScreen(session, connect, options.wish, folder, (NEXT_TIME, NEXT_TIME_HANG), options.watch_hang),
        theme=options.theme,
        debug=options.debug,
        connections=connections,
        configuration=options.configuration,
    )
    return run_app(app, options)
