"""``python -m bench.launch``."""

import sys

from bench.launch.command import main

sys.exit(main())
