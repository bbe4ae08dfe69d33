"""``python -m tests.fuzz FIRST LAST [--jobs N] [--time SECONDS] [--profile NAME]... [--json FILE]``."""

from __future__ import annotations

import sys

from .command import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
