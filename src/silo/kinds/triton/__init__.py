"""Triton kernels: ``front`` reads, ``gpu`` and ``cpu`` compile; ``programs`` serves programs that do not use Silo."""
