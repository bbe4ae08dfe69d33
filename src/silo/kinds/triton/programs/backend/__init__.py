"""Silo as a backend of Triton itself: kernels of programs that know no Silo run on the CPU.

Triton imports ``compiler`` and ``driver`` with every ``import triton`` and fails where one of them does. So neither
imports anything of Silo before it is used, and where Silo cannot be used the driver is inactive and says why.
"""
