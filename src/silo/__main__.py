"""``python -m silo``: the ``silo`` command, run by this Python interpreter."""

from silo.cli.main import main

if __name__ == "__main__":
    main()
