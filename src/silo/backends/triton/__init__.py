"""Compiler plug-in: Triton sources to cubin and hsaco."""
