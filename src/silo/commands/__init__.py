"""What each command of ``silo`` does; ``silo.cli`` is its text in and out."""
