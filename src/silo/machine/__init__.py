"""The state of a process: its session, and the plug-ins of devices, arrays and files. Decides nothing on kernels."""
