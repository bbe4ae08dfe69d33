"""Remote stores to test against: a folder, and servers on the loopback interface."""

from __future__ import annotations

from contextlib import contextmanager


@contextmanager
def folder(tmp_path):
    """A folder of a file share."""
    (tmp_path / "share").mkdir()
    yield f"file:{tmp_path / 'share'}"


SERVERS = {"file": folder}
