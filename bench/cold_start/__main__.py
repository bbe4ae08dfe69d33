"""``python -m bench.cold_start``."""

import sys

from bench.cold_start.command import main

sys.exit(main())
