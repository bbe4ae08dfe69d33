"""C text for NVIDIA's libdevice functions and PTX instructions, for operations that name one.

Only the CPU compiler uses this package.
"""
