"""Keys and signatures of minisign: reads and writes their texts and files.

A signature covers the BLAKE2b hash of a message (minisign's prehashed form, ``ED``); a second signature covers the
first one and a comment. A key has a number, which a signature repeats to name its key. No signature covers the number,
so anybody can change it.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from typing import Final

from silo.errors import SignatureError
from silo.frozen import frozen

__all__ = [
    "MAX_COMMENT_BYTES",
    "MAX_SIGNATURE_BYTES",
    "MinisignSignature",
    "PublicKey",
    "is_weak_point",
    "number_text",
    "prehashed",
]

MAX_COMMENT_BYTES: Final = 8192  # the most bytes of a comment, as in minisign itself
MAX_SIGNATURE_BYTES: Final = 16384  # the largest size of a signature file: three short lines and two comments

_KEY: Final = b"Ed"
_PREHASHED: Final = b"ED"
_PUBLIC_BYTES: Final = 42
_SIGNATURE_BYTES: Final = 74
_KEY_TEXT = re.compile(r"RW[A-Za-z0-9+/]{54}")
_UNTRUSTED: Final = b"untrusted comment: "
_TRUSTED: Final = b"trusted comment: "

_PRIME: Final = 2**255 - 19
# The second coordinates of the points whose order divides 8: with such a key anybody can sign any message.
_ORDER_8: Final = 0x7A03AC9277FDC74EC6CC392CFA53202A0F67100D760B3CBA4FD84D3D706A17C7
_WEAK: Final = frozenset({0, 1, _PRIME - 1, _ORDER_8, _PRIME - _ORDER_8})


def is_weak_point(point: bytes) -> bool:
    r"""Whether anybody can sign for a public key, or the key is not in canonical form.

    >>> is_weak_point(bytes(32)), is_weak_point(b"\x58" + b"\x66" * 31)
    (True, False)
    """
    number = int.from_bytes(point, "little") & ((1 << 255) - 1)
    return number >= _PRIME or number in _WEAK


@frozen
class PublicKey:
    """An Ed25519 key that verifies signatures. ``number`` is eight bytes that the key's maker chose."""

    number: bytes
    point: bytes

    @property
    def id(self) -> str:
        """The key's number in the form that minisign prints."""
        return number_text(self.number)

    @property
    def text(self) -> str:
        """The key as the 56 characters that people exchange.

        >>> PublicKey.parse("RWRXYFTj/cvKiReG/Kcfi0NUT0CLkT75eYqol7jBpHXwSTjzQLefb5vP").id
        '89CACBFDE3546057'
        """
        return base64.b64encode(_KEY + self.number + self.point).decode("ascii")

    @property
    def file_text(self) -> str:
        """The contents of the key's file."""
        return f"untrusted comment: minisign public key {self.id}\n{self.text}\n"

    @classmethod
    def parse(cls, text: str) -> PublicKey:
        """Parses the 56 characters. Raises ``SignatureError`` for anything else."""
        data = _decoded(text.encode("ascii", "replace"), _PUBLIC_BYTES, "a public key")
        if data[:2] != _KEY:
            raise SignatureError(f"a key of the algorithm {data[:2]!r}, which is not known; keys begin with RW")
        key = cls(data[2:10], data[10:])
        if is_weak_point(key.point):
            raise SignatureError(f"the key {key.id} is one that anybody can sign for: no key pair has it")
        return key

    @classmethod
    def parse_file(cls, data: bytes) -> PublicKey:
        """Parses the contents of a key's file: a comment line and then the key, or the key alone."""
        keys = [line for line in data.split(b"\n") if line.strip() and not line.startswith(_UNTRUSTED)]
        if len(keys) != 1:
            raise SignatureError("not a public key: that is a line of comment and one of 56 characters")
        return cls.parse(keys[0].strip().decode("ascii", "replace"))

    @staticmethod
    def looks_like(text: str) -> bool:
        """Whether a text has the form of a key, so that it is not taken for a file name."""
        return _KEY_TEXT.fullmatch(text) is not None


@frozen
class MinisignSignature:
    """The contents of a signature file, which lies beside the signed file.

    ``data`` is the signature of the file. It does not cover ``comment``; ``comment_signature`` covers both.
    """

    number: bytes
    data: bytes
    comment: bytes
    comment_signature: bytes

    @property
    def id(self) -> str:
        """The number of the key that the signature names. It is not verified."""
        return number_text(self.number)

    @property
    def comment_text(self) -> str:
        """The signed comment as sanitized text; its bytes may be anything."""
        return self.comment.decode("utf-8", "replace")

    @property
    def signed_comment(self) -> bytes:
        """The bytes that ``comment_signature`` signs."""
        return self.data + self.comment

    def file_bytes(self, untrusted: str) -> bytes:
        """Returns the contents of a signature file; ``untrusted`` is a comment that is not signed."""
        lines = (
            _UNTRUSTED + untrusted.encode(),
            base64.b64encode(_PREHASHED + self.number + self.data),
            _TRUSTED + self.comment,
            base64.b64encode(self.comment_signature),
        )
        return b"\n".join(lines) + b"\n"

    @classmethod
    def parse(cls, data: bytes) -> MinisignSignature:
        """Parses the contents of a signature file. ``SignatureError`` names the fault."""
        if len(data) > MAX_SIGNATURE_BYTES:
            raise SignatureError(f"more than the {MAX_SIGNATURE_BYTES} bytes that a signature may have")
        lines = data.removesuffix(b"\n").split(b"\n")
        if len(lines) != 4 or not lines[0].startswith(_UNTRUSTED) or not lines[2].startswith(_TRUSTED):
            raise SignatureError(
                "not a signature of minisign's: four lines, the first and the third with 'untrusted comment: ' and "
                "'trusted comment: '"
            )
        comment = lines[2].removeprefix(_TRUSTED)
        if len(comment) > MAX_COMMENT_BYTES or b"\r" in data or b"\0" in data:
            raise SignatureError(
                f"a comment of more than {MAX_COMMENT_BYTES} bytes, or with ends of lines or zeros in it"
            )
        signed = _decoded(lines[1], _SIGNATURE_BYTES, "a signature")
        if signed[:2] == _KEY:
            raise SignatureError("a signature of the old form, of the bytes and not of their hash: sign without -l")
        if signed[:2] != _PREHASHED:
            raise SignatureError(f"a signature of the algorithm {signed[:2]!r}, which is not known")
        return cls(signed[2:10], signed[10:], comment, _decoded(lines[3], 64, "the signature of the comment"))


def number_text(number: bytes) -> str:
    """Returns the number of a key in the form that minisign prints: sixteen digits.

    >>> number_text(bytes([1, 0, 0, 0, 0, 0, 0, 255]))
    'FF00000000000001'
    """
    return f"{int.from_bytes(number, 'little'):016X}"


def prehashed(message: bytes) -> bytes:
    """Returns the BLAKE2b hash of ``message``, 64 bytes, which a signature covers."""
    return hashlib.blake2b(message).digest()


def _decoded(text: bytes, size: int, label: str) -> bytes:
    try:
        data = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        data = b""
    # Accept only the canonical base64 text, whose unused bits are zero.
    if len(data) != size or base64.b64encode(data) != text:
        raise SignatureError(f"{label} is {size} bytes in base64, which {len(text)} characters here are not")
    return data
