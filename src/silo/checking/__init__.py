"""Runs launches in checking mode: repeats a launch over copies of its memory, finds faults, and raises the error.

The package serves every kind of kernel. A kind supplies its code (``kernel.CheckedCode``) and the runs of a launch
(``machine.CheckedLaunch``). The kind also decides how a run starts, which faults and doubtful values a run found, and
the words and source lines with which each is reported. No module here names a kind, imports one, or compiles.
"""
