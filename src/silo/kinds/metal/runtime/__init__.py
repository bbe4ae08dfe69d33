"""The headers that the text of a Metal kernel is compiled against: Metal's library for the CPU.

``<metal_stdlib>`` and its siblings have their own names here; their parts are in ``emulator/``, one noun per file.
The headers include no part of the C++ library, so the host needs none.
"""

from __future__ import annotations

from pathlib import Path

__all__ = ["FOLDER", "TORCH_HEADERS"]

FOLDER = Path(__file__).parent

# Metal's headers of an installed torch have names that begin so.
TORCH_HEADERS = "c10/metal/"
