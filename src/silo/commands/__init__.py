"""The action of each command of ``silo``; ``silo.cli`` reads its arguments and prints its result."""
