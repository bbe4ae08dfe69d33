"""The headers that a kernel's text is compiled against for the CPU: CUDA's language and its headers by their own names.

The headers include no part of the C++ library, so the host needs none.
"""

from __future__ import annotations

from pathlib import Path

__all__ = ["FOLDER"]

FOLDER = Path(__file__).parent
