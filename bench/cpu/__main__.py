"""``python -m bench.cpu``."""

from bench.cpu.command import main

main()
