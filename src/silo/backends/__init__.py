"""Plug-ins, a folder each: compilers and devices."""
