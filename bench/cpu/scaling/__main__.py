"""``python -m bench.cpu.scaling``."""

from bench.cpu.scaling.command import main

if __name__ == "__main__":
    main()
