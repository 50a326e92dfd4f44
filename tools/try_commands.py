"""Run the commands that need no screen on a sample: `python tools/try_commands.py [--refused] [-- PROGRAM]`.

CI does so with the wheel on other systems. Each command must end with status 0. With `--refused`, for systems that the
program does not support, each must end with status 2 and one line. Standard library only.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile

SAMPLE = "sample:train_gpt_stack_memory"

COMMANDS = (
    ("info", SAMPLE),
    ("check", SAMPLE, "--json"),
    ("table", SAMPLE, "--csv"),
    ("diff", SAMPLE, SAMPLE),
    ("chain", SAMPLE, "--event", "aten::mm"),
    ("memory", SAMPLE),
    ("slice", SAMPLE, "--range", "0:10ms", "-o", "slice.json.gz"),
    ("export", SAMPLE, "-o", "events.csv"),
    ("snapshot", SAMPLE, "-o", "screen.txt"),
)


def main(words: list[str]) -> int:
    """Run all commands in a temporary folder; return 1 and print what differs if one of them ends otherwise."""
    is_refused = words[:1] == ["--refused"]
    program = words[words.index("--") + 1 :] if "--" in words else ["torchprof-tui"]
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        for command in COMMANDS:
            done = subprocess.run([*program, *command], cwd=folder, capture_output=True, check=False, timeout=300)
            err = done.stderr.decode(errors="replace")
            is_line = err.startswith("torchprof-tui: ") and err.count("\n") == 1 and "crashed" not in err
            if done.returncode != (2 if is_refused else 0) or (is_refused and not is_line):
                print(f"{' '.join(command)}: status {done.returncode}\n{err}")
                failed = 1
    print("failed" if failed else f"{len(COMMANDS)} commands {'refused in one line' if is_refused else 'answered'}")
    return failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
