"""The C runtime that emitted kernels carry: only the pieces a kernel needs, as text."""

from silo.kinds.triton.cpu.runtime.pieces import DOT_DEPTH_BYTES, PIECES, text, with_needs

__all__ = ["DOT_DEPTH_BYTES", "PIECES", "text", "with_needs"]
