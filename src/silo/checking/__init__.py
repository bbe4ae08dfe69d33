"""Runs launches in checking mode: repeats a launch over copies of its memory, finds faults, and raises the error.

The package serves every kind of kernel. A kind supplies its code (``kernel.CheckedCode``) and the runs of a launch
(``machine.CheckedLaunch``): how to start a run, which faults and doubtful values it found, and the words and source
lines for each. No module here names a kind, imports one, or compiles.
"""
