"""``python -m silo``: the ``silo`` command of this very Python."""

from silo.cli.main import main

if __name__ == "__main__":
    main()
