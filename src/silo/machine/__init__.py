"""The state of a process: its session, and its plug-ins for devices, arrays and files. Does not depend on kernels.

The session of a process is its settings, its store and its compile workers.
"""
