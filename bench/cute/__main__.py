"""``python -m bench.cute``."""

import sys

from bench.cute.command import main

sys.exit(main())
