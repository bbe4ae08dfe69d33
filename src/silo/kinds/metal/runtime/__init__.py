"""Headers against which the text of a Metal kernel is compiled: Metal's library for the CPU.

``<metal_stdlib>`` and the other headers have the same names as Metal's; they include the files in ``emulator/``, one
for each subject. The headers include no part of the C++ library, so the host needs none.
"""

from __future__ import annotations

from pathlib import Path

__all__ = ["FOLDER", "TORCH_HEADERS"]

FOLDER = Path(__file__).parent

# The prefix of the names of torch's headers for Metal.
TORCH_HEADERS = "c10/metal/"
