"""Silo as a backend of Triton itself: kernels of programs that do not import Silo run on the CPU.

Triton imports ``compiler`` and ``driver`` with every ``import triton``, and fails if one of them fails. So neither
module imports anything of Silo until Triton uses the backend. If Silo cannot be used, the driver is inactive and logs
the reason.
"""
