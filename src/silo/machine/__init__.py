"""What this process shares: its session, the plug-ins of devices, arrays and files. Decides nothing about kernels."""
