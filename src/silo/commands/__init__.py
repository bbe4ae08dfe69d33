"""The actions of the ``silo`` commands. ``silo.cli`` reads their arguments and prints their results."""
