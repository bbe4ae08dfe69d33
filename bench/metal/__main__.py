"""``python -m bench.metal``."""

import sys

from bench.metal.command import main

sys.exit(main())
