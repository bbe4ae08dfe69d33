"""The silo command, one file a command."""
