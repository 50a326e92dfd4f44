"""Run torchprof-tui as `python -m torchprof_tui`."""

import sys

from torchprof_tui.cli import main

sys.exit(main())
