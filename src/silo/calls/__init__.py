"""Finds a config and its code for a call that the launcher cannot serve yet. Does not depend on the command line."""
