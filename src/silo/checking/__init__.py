"""Checked runs of kernels, for every kind: the runs of a launch, copies of memory, findings, the error.

A kind of kernel supplies its code (``kernel.CheckedCode``) and the runs of a launch (``machine.CheckedLaunch``): how to
start a run, which faults and doubtful values it found, and the words and source lines for each. No module here names a
kind, imports one, or compiles.
"""
