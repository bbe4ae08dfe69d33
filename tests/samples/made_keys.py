"""Keys and signatures that tests make, and calls of minisign if it is installed."""

import shutil
import subprocess

import pytest

from silo.core.minisign import MinisignSignature, prehashed
from silo.store.signatures import SecretKey

__all__ = ["HEADER", "OTHER", "SECRET", "minisign", "resigned", "without_cryptography"]

SECRET = SecretKey(bytes(range(8)), bytes(range(32)))
OTHER = SecretKey(bytes(range(8, 16)), bytes(range(32, 64)))
HEADER = b"SILOBNDL" + bytes(range(56))


def minisign(*arguments, text="", check=True):
    """Run minisign; skip the test if it is not installed."""
    if shutil.which("minisign") is None:
        pytest.skip("minisign is not installed (the package minisign of most distributions)")
    command = ["minisign", *map(str, arguments)]
    return subprocess.run(command, input=text, text=True, capture_output=True, check=check, timeout=240)


def resigned(message: bytes, comment: bytes, key: SecretKey = SECRET) -> MinisignSignature:
    """Return a valid signature with a comment that Silo itself would refuse to sign."""
    from silo.store.signatures import signed

    data = signed(key.seed, prehashed(message))
    return MinisignSignature(key.number, data, comment, signed(key.seed, data + comment))


def without_cryptography(monkeypatch) -> None:
    """Make imports of the package cryptography fail, as if it were not installed."""
    import sys

    for name in [name for name in sys.modules if name.partition(".")[0] == "cryptography"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "cryptography", None)
