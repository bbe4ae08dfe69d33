"""Plug-ins: compilers and devices, found by entry points."""
