"""``SILO_TEST_CHECKOUTS=/a:/b python -m tests.census.checkouts [--jobs N] [--only NAME] [--json FILE]``."""

from __future__ import annotations

import sys

from .command import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
