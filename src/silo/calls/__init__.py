"""From a call without code to a config and its code. Imports no command."""
