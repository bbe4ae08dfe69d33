"""``python -m bench.search``."""

from bench.search.command import main

main()
