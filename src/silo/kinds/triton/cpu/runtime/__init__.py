"""The C runtime of emitted kernels, as text; a kernel's text includes only the pieces that it needs."""

from silo.kinds.triton.cpu.runtime.pieces import DOT_DEPTH_BYTES, PIECES, text, with_needs

__all__ = ["DOT_DEPTH_BYTES", "PIECES", "text", "with_needs"]
