"""Open a trace in Perfetto's UI: `torchprof-tui perfetto`.

As https://perfetto.dev/docs/visualization/deep-linking-to-perfetto-ui describes it for a URL, and as Perfetto's own
`open_trace_in_ui` does it for a file of this machine.
"""

from __future__ import annotations

import errno
import getpass
import os
import socket
import tempfile
from pathlib import Path

from torchprof_tui.analysis.export.chrome_file import ChromeFile, write_chrome_file
from torchprof_tui.analysis.slicing.slice_writer import SliceError, SliceResult, write_slice
from torchprof_tui.commands.common.errors import UsageError
from torchprof_tui.commands.common.load import load_specs, report_private_values, select_rank
from torchprof_tui.commands.common.options import parse_time_range
from torchprof_tui.commands.perfetto.options import PERFETTO_PORT, PerfettoOptions
from torchprof_tui.commands.perfetto.trace_server import LOOPBACK, TraceServer
from torchprof_tui.trace.core.atomic_file import OutputError
from torchprof_tui.trace.core.printable import clean
from torchprof_tui.trace.model.trace import Trace
from torchprof_tui.ui.common.number_format import format_file_size

_SUFFIXES = (".gz", ".xz", ".zst", ".json", ".pftrace")


def run(options: PerfettoOptions) -> int:
    times = None if options.range is None else parse_time_range(options.range)
    trace = load_specs(options.trace, cache=not options.no_cache).trace
    if options.rank is not None or ((times or options.step is not None) and trace.merged_ranks is not None):
        trace, _ = select_rank(trace, options.rank)
    if options.step is not None:
        times = find_step_range(trace, options.step)
    with tempfile.TemporaryDirectory(prefix="torchprof-tui-") as folder:
        file = Path(folder) / _name_file(trace)
        write_copy(trace, times, file, options.keep_metadata)
        with _start_server(file, options.port) as server:
            _print_link(server, file, options.port)
            server.serve_until_fetched()
    print("fetched; nothing is served any more")
    return 0


def write_copy(trace: Trace, times: tuple[int, int] | None, file: Path, keep_private: bool) -> None:
    """Write what is to be served: the range `times` in ns, None for all. Raises UsageError."""
    try:
        if times is None:
            written: ChromeFile | SliceResult = write_chrome_file(trace, file, keep_private)
        else:
            written = write_slice(trace, *times, file, keep_private=keep_private)
    except (SliceError, LookupError, OutputError) as error:
        raise UsageError(f"{trace.label}: {error.args[0] if error.args else error}") from error
    report_private_values(written.private_values, written.kept_keys)


def find_step_range(trace: Trace, number: int) -> tuple[int, int]:
    """Find the start and end of a step, ns. Raises UsageError."""
    for step in trace.steps:
        if step.number == number:
            return step.start, step.start + max(step.duration, 1)
    known = f"it has {trace.steps[0].number} to {trace.steps[-1].number}" if trace.steps else "it has none"
    raise UsageError(f"no step {number} in this trace ({known})")


def format_forwarding(environment: dict[str, str], port: int) -> str:
    """Format the ssh command that makes the link work from another machine; "" where this one has the browser."""
    connection = environment.get("SSH_CONNECTION", "").split()
    if not connection and port == PERFETTO_PORT:
        return ""
    ssh_port = f"-p {connection[3]} " if len(connection) == 4 and connection[3] not in ("22", "") else ""
    return f"ssh {ssh_port}-N -L {PERFETTO_PORT}:{LOOPBACK}:{port} {_name_user()}{socket.gethostname()}"


def _name_user() -> str:
    try:
        return f"{getpass.getuser()}@"
    except (OSError, KeyError):  # a user id without a name, as in containers
        return ""


def _name_file(trace: Trace) -> str:
    """Name the copy after the trace; Perfetto shows it as its title."""
    stem = Path(trace.label).name
    while stem.endswith(_SUFFIXES):
        stem = stem[: stem.rindex(".")]
    return f"{clean(stem)[-80:] or 'trace'}.json.gz"


def _start_server(file: Path, port: int) -> TraceServer:
    try:
        return TraceServer(file, port, PERFETTO_PORT)
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            raise
        raise UsageError(
            f"port {port} is in use, perhaps by another `perfetto` command or trace_processor: end it first; over ssh "
            "--port N takes another one"
        ) from error


def _print_link(server: TraceServer, file: Path, port: int) -> None:
    size = format_file_size(file.stat().st_size)
    print(f"{size}, served once to a browser on this machine; ctrl+c ends it")
    forwarding = format_forwarding(dict(os.environ), port)
    if forwarding:
        print(f"first, on the machine with the browser:\n  {clean(forwarding)}\nthen open there:")
    else:
        print("open:")
    print(f"  {server.link}", flush=True)
