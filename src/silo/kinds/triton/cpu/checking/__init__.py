"""Checks of a kernel on the CPU: compiling code that checks each memory access, running it, and the findings."""
