"""Launches kernels: binds the arguments of a call, chooses the code that serves the call, and allocates buffers.

All access to the native module goes through ``silo.launch.native``.
"""
