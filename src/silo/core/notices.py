"""Warnings that are logged once a process."""

from __future__ import annotations

from silo.forks import Mutex

__all__ = ["Notices"]


class Notices:
    """Warnings on one logger, each subject at most once."""

    def __init__(self, logger: str = "silo") -> None:
        self._logger = logger
        self._lock = Mutex()
        self._logged: set[str] = set()

    def once(self, subject: str, message: str) -> None:
        """Log ``message`` unless something about ``subject`` was logged before."""
        with self._lock:
            if subject in self._logged:
                return
            self._logged.add(subject)
        import logging  # noqa: PLC0415  # takes milliseconds, and all is well as a rule

        logging.getLogger(self._logger).warning("%s", message)
