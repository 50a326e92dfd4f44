"""Fake of `torchprof_runs/harness.py` without torch: sends the same status messages and writes the same files.

The script runs in this process. Its "recording" is a copy of a sample, or of the one that it names in the variable
RECORDED, unless it sets TRACES to 0. If it sets RANKS, each rank has two copies, or CYCLES.
"""

from __future__ import annotations

import contextlib
import json
import os
import runpy
import shutil
import signal
import sys
import time
from pathlib import Path
from typing import Any

# Not from tests.helpers.paths: this script runs in any folder, without the checkout on sys.path.
SAMPLES = Path(__file__).resolve().parents[2] / "sample_traces" / "torchprof_samples"
SAMPLE = SAMPLES / "matmul_add_64_cold_eager.pt.trace.json.gz"


def send_message(**fields: Any) -> None:
    """Write a status message, as `status_messages.Reporter` does."""
    common_fields = {"time": time.time(), "pid": os.getpid(), "rank": 0}
    with contextlib.suppress(OSError):  # the reader may have closed the pipe
        os.write(channel, json.dumps({**common_fields, **fields}).encode() + b"\n")


def save(end_reason: str, status: int) -> None:
    """Write the traces and the manifests, as the recorder does at the end of a run."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    send_message(phase="exporting")
    recorded = SAMPLES / f"{variables['RECORDED']}.pt.trace.json.gz" if "RECORDED" in variables else SAMPLE
    kept, trace = [], f"{Path(script).stem}.pt.trace.json.gz"
    if variables.get("TRACES", 1):
        shutil.copy(recorded, folder / trace)
        kept = [{"trace": trace}]
    for rank in range(variables.get("RANKS", 0)):
        names = [f"fake.rank{rank}.pt.trace.json.gz", f"fake.rank{rank}.cycle2.pt.trace.json.gz"]
        names = names[: variables.get("CYCLES", 2)]
        for name in names:
            shutil.copy(recorded, folder / name)
        facts = {"rank": rank, "kept": [{"trace": name} for name in names], "ended": end_reason, "exit_status": status}
        (folder / f"manifest.rank{rank}.json").write_text(json.dumps(facts))
    facts = {"kept": kept, "ended": end_reason, "exit_status": status, "seconds": 1.5}
    (folder / "manifest.json").write_text(json.dumps(facts))
    send_message(log=f"ended: {end_reason}")
    send_message(phase="done")


def save_and_terminate(signum: int, frame: object) -> None:
    """Save, then end by the same signal."""
    save(signal.Signals(signum).name, -signum)
    signal.signal(signum, signal.SIG_DFL)
    os.kill(os.getpid(), signum)


words = sys.argv[1:]
script = next(word for word in words if word.endswith(".py"))
if "refuse" in script:
    sys.exit("torchprof-tui: no torch in this interpreter: name another with --python")
output = Path(words[words.index("--output") + 1]).absolute()
output.mkdir(parents=True, exist_ok=True)
folder = output / f"{Path(script).stem}-{len(list(output.iterdir()))}"
folder.mkdir()
(folder / "words.json").write_text(json.dumps(words))
channel = os.open(os.environ["TORCHPROF_STATUS"], os.O_WRONLY | os.O_NONBLOCK)
variables: dict[str, Any] = {}
for signum in (signal.SIGTERM, signal.SIGHUP):
    signal.signal(signum, save_and_terminate)
send_message(phase="starting", folder=str(folder))
send_message(phase="recording", step=2, of=3)
try:
    variables.update(runpy.run_path(script, {"FOLDER": str(folder), "SETTINGS": variables}))
except KeyboardInterrupt:
    save("interrupted", 130)
    sys.exit(130)
except Exception:
    save("Exception", 1)
    raise
save("finished", 0)
