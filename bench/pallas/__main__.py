"""``python -m bench.pallas``."""

import sys

from bench.pallas.command import main

sys.exit(main())
