"""The headers that the text of a Metal kernel is compiled against: Metal's library for the CPU.

``<metal_stdlib>`` and its siblings lie here under their own names; what they are made of lies in ``emulator/``, a noun
a file. Nothing of the C++ library is included, so the host needs none.
"""

from __future__ import annotations

from pathlib import Path

__all__ = ["FOLDER"]

FOLDER = Path(__file__).parent
