"""The state of a process: its session, and its plug-ins for devices, arrays and files. Does not depend on kernels."""
