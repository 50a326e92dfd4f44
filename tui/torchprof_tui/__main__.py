"""`python -m tui` is `torchprof-tui`."""

import sys

from torchprof_tui.cli import main

sys.exit(main())
