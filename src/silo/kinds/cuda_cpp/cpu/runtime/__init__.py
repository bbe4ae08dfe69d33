"""The headers against which a kernel's text is compiled for the CPU: CUDA's language, and headers named as in CUDA.

The headers include no part of the C++ library, so the host needs none.
"""

from __future__ import annotations

from pathlib import Path

__all__ = ["FOLDER"]

FOLDER = Path(__file__).parent
