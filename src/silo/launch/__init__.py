"""Everything that happens at a call: argument binding, dispatch and buffers.

All access to the native module goes through ``silo.launch.native``.
"""
