"""Checked runs of kernels, for every kind: which runs a launch makes, copies of memory, findings, the error.

A kind of kernel gives its code (``kernel.CheckedCode``) and the runs of a launch (``machine.CheckedLaunch``): how a run
is started, which faults and doubtful values it shows, and the words and source lines of each. No module here names a
kind, imports one, or compiles.
"""
