"""Runs the threads of a GPU's block on the CPU as fibers, compiled by clang, optionally with checks in the code."""
