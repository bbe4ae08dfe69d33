"""Emits the C text of a kernel from its loop program."""
