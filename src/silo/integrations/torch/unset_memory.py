"""Hook point in torch's allocator of host memory, for checks: fills new memory with a pattern that checks recognise."""

from __future__ import annotations

import logging
from typing import Any

from silo.launch.new_memory import fill_new_memory

__all__ = ["connect"]


def connect(module: Any) -> None:  # noqa: ANN401  # torch
    """Makes torch fill the memory that it allocates on the CPU. Logs the reason if this torch cannot."""
    filled = fill_new_memory(module)
    if not filled:
        logging.getLogger("silo").info(
            "reads of memory that torch.empty made are found only if the argument is named (uninitialized=): %s",
            filled.reason,
        )
