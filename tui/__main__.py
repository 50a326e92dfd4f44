"""`python -m tui` is `torchprof-tui`."""

import sys

from tui.cli import main

sys.exit(main())
