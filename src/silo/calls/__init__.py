"""Finds a config and its code for a call that the launcher cannot serve yet. Independent of the command line."""
