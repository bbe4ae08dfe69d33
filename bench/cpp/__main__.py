"""``python -m bench.cpp``."""

import sys

from bench.cpp.command import main

sys.exit(main())
