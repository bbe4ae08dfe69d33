"""C++ headers shared by the kinds of kernels whose groups of threads run on the CPU.

``<silo_threads/...>`` has threads, barriers and operations between lanes; ``checking/`` has the hooks of code that
checks itself. The headers include no part of the C++ library.
"""

from __future__ import annotations

from pathlib import Path

__all__ = ["FOLDER", "HOOKS"]

FOLDER = Path(__file__).parent

HOOKS = FOLDER / "checking"
"""The folder that contains ``<checked_hooks.h>``."""
