"""Warnings that are logged once a process."""

from __future__ import annotations

import logging

from silo.forks import Mutex

__all__ = ["Notices"]


class Notices:
    """Warnings on the ``silo`` logger, each subject at most once."""

    def __init__(self) -> None:
        self._lock = Mutex()
        self._told: set[str] = set()

    def once(self, subject: str, message: str) -> None:
        """Log ``message`` unless something about ``subject`` was logged before."""
        with self._lock:
            if subject in self._told:
                return
            self._told.add(subject)
        logging.getLogger("silo").warning("%s", message)
