"""Stores results of Triton's first compile: the hash of its files, and the C modules that its drivers build.

Every process of a program repeats this work, which takes a second with Triton 3.6. The hash is reused as long as every
file that Triton reads for it has the path, size, times and inode that it had when the hash was computed. A module is
code for the host: it is stored under a key of everything that its build reads, and loaded with the consent of the
store's trust ledger, which is given only to builds by this user.
"""

from __future__ import annotations

import hashlib
import logging
import time
from collections.abc import Callable

from silo.errors import SiloError
from silo.forks import Mutex, Notices
from silo.kinds.triton.front.adapter import HostModule, KeyFiles

__all__ = ["StoredFirstCompile"]

_log = logging.getLogger("silo")

# a file that changed less than this ago could change again without a visible change of its time
_SETTLED_NS = 2_000_000_000
_LONGEST_KEY = 1 << 20  # the most characters of a key that is stored


class StoredFirstCompile:
    """Returns results of Triton's first compile from the store, and stores new ones.

    Nothing is written before :meth:`keep` is called, which happens when a program tunes.
    """

    def __init__(self) -> None:
        self._keeps = False
        self._deferred: list[Callable[[], None]] = []
        self._lock = Mutex()
        self._notices = Notices()

    def keep(self) -> None:
        """Writes all deferred results; later results are written at once."""
        with self._lock:
            self._keeps = True
            deferred, self._deferred = self._deferred, []
        for write in deferred:
            self._write(write)

    def _write(self, write: Callable[[], None]) -> None:
        with self._lock:
            if not self._keeps:
                self._deferred.append(write)
                return
        try:
            write()
        except (SiloError, OSError) as error:
            self._notices.once("keep", f"later processes repeat work of Triton's first compile: {error}")

    def installation(self, original: Callable[[], str], files: Callable[[], KeyFiles]) -> str:
        """Returns Triton's hash of its installation: the stored one if none of Triton's files has changed since."""
        from silo.machine.process_session import session  # noqa: PLC0415  # with the first compile

        try:
            before = files()
            stored = session().store.files.get(before.place)
        except (SiloError, OSError) as error:
            _log.debug("Triton hashes its installation: %s", error)
            return original()
        if stored is not None and stored.get("state") == before.state.encode():
            return stored["key"].decode()
        started_ns = time.time_ns()
        key = original()

        def write() -> None:
            # The hash belongs to these files if they last changed well before it was computed and are the same
            # afterwards.
            if before.changed_ns + _SETTLED_NS < started_ns and files() == before and len(key) < _LONGEST_KEY:
                session().store.files.put(before.place, {"state": before.state.encode(), "key": key.encode()})

        self._write(write)
        return key

    def build(self, built: HostModule, original: Callable[[], bytes]) -> bytes:
        """Returns a C module that this user built and stored earlier, or else builds it."""
        from silo.core.consent import HostCode, require_consent  # noqa: PLC0415  # few Tritons build any
        from silo.core.launch_info import LaunchInfo  # noqa: PLC0415
        from silo.machine.process_session import session  # noqa: PLC0415

        # Python calls the module through its initialiser, so there are no parameters
        launch = LaunchInfo(built.name, ())
        try:
            store = session().store
            stored = store.files.get(built.key)
            if stored is not None and (data := stored.get("so")) is not None:
                code = HostCode(hashlib.sha256(data).hexdigest(), "so", launch)
                consent = store.trust.vouch(code, origin=f"{built.name}, which Triton builds")
                require_consent(consent, launch, data, "so", built.name)
                return data
        except (SiloError, OSError) as error:
            self._notices.once("build", f"{built.name} is built again by Triton: {error}")
        data = original()

        def write() -> None:
            store = session().store
            if store.files.put(built.key, {"so": data}):
                store.trust.note_built(HostCode(hashlib.sha256(data).hexdigest(), "so", launch))

        self._write(write)
        return data
