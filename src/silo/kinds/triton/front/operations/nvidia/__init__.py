"""NVIDIA's libdevice functions and PTX instructions as C text, for operations that name one; only the CPU runs it."""
