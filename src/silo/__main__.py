"""``python -m silo``: runs the ``silo`` command with the Python interpreter that was started."""

from silo.cli.main import main

if __name__ == "__main__":
    main()
