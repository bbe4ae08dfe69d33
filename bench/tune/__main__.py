"""``python -m bench.tune``."""

import sys

from bench.tune.command import main

sys.exit(main())
