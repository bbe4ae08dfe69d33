"""The C runtime that emitted kernels carry: only the pieces a kernel needs, as text."""

from silo.backends.cpu.runtime.pieces import PIECES, runtime_digest, text, with_needs

__all__ = ["PIECES", "runtime_digest", "text", "with_needs"]
