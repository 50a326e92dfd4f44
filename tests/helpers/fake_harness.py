"""Stands in for `torchprof_runs/harness.py` where torch would only cost time: says what it says, keeps what it keeps.

The script runs in this process; what it "recorded" is one of the samples, unless it sets TRACES to 0,
or RANKS: then each rank has two of it.
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

SAMPLE = (
    Path(__file__).resolve().parents[2]
    / "sample_traces"
    / "torchprof_samples"
    / "matmul_add_64_cold_eager.pt.trace.json.gz"
)


def tell(**facts: Any) -> None:
    with contextlib.suppress(OSError):  # nobody may listen any more
        os.write(channel, json.dumps({"time": time.time(), "pid": os.getpid(), "rank": 0, **facts}).encode() + b"\n")


def save(how: str, status: int) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    tell(phase="exporting")
    kept, trace = [], f"{Path(script).stem}.pt.trace.json.gz"
    if variables.get("TRACES", 1):
        shutil.copy(SAMPLE, folder / trace)
        kept = [{"trace": trace}]
    for rank in range(variables.get("RANKS", 0)):
        names = [f"fake.rank{rank}.pt.trace.json.gz", f"fake.rank{rank}.cycle2.pt.trace.json.gz"]
        for name in names:
            shutil.copy(SAMPLE, folder / name)
        its = {"rank": rank, "kept": [{"trace": name} for name in names], "ended": how, "exit_status": status}
        (folder / f"manifest.rank{rank}.json").write_text(json.dumps(its))
    facts = {"kept": kept, "ended": how, "exit_status": status, "seconds": 1.5}
    (folder / "manifest.json").write_text(json.dumps(facts))
    tell(log=f"ended: {how}")
    tell(phase="done")


def terminated(signum: int, frame: object) -> None:
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
for each in (signal.SIGTERM, signal.SIGHUP):
    signal.signal(each, terminated)
tell(phase="starting", folder=str(folder))
tell(phase="recording", step=2, of=3)
try:
    variables.update(runpy.run_path(script, {"FOLDER": str(folder), "SETTINGS": variables}))
except KeyboardInterrupt:
    save("interrupted", 130)
    sys.exit(130)
except Exception:
    save("Exception", 1)
    raise
save("finished", 0)
