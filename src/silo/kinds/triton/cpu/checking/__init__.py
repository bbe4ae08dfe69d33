"""Checks of a kernel on the CPU: code that checks itself, its runs, and the findings."""
