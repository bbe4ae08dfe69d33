r"""One record on one line, so framed that a torn, altered or foreign line is never taken for a record.

``LENGTH CHECKSUM PAYLOAD\n``: eight hex digits, sixteen hex digits, then canonical JSON. The checksum covers a
scope (what the record belongs to) as well, so a line copied under another name does not count either.
"""

from __future__ import annotations

import hashlib
import re

from silo.core.values import JSON, canonical_json, parse_json
from silo.errors import StoreError
from silo.store.append_log import LogFraming

__all__ = ["LINES", "MAX_RECORD_BYTES", "decode_line", "encode_line"]

MAX_RECORD_BYTES = 64 << 20
LINES = LogFraming(end=b"\n")  # of a log of such lines

_HEAD = re.compile(rb"([0-9a-f]{8}) ([0-9a-f]{16}) ")


def _checksum(scope: str, payload: bytes) -> bytes:
    return hashlib.sha256(scope.encode() + b"\0" + payload).hexdigest()[:16].encode()


def encode_line(scope: str, record: JSON) -> bytes:
    r"""The line of one record, newline included; ``StoreError`` when it is longer than 64 MiB.

    >>> encode_line("record/k", {"a": 1})
    b'00000007 6095dd3db46e8448 {"a":1}\n'
    """
    payload = canonical_json(record)
    if len(payload) > MAX_RECORD_BYTES:
        raise StoreError(f"a record of {len(payload)} bytes is longer than the {MAX_RECORD_BYTES} that the store keeps")
    return b"%08x %s %s\n" % (len(payload), _checksum(scope, payload), payload)


def decode_line(scope: str, line: bytes) -> JSON:
    """The record on one line without its newline; ``ValueError`` says what is wrong with it."""
    head = _HEAD.match(line)
    if head is None:
        raise ValueError("not a record line")
    payload = line[head.end() :]
    if len(payload) != int(head[1], 16):
        raise ValueError(f"torn: {len(payload)} bytes of {int(head[1], 16)}")
    if head[2] != _checksum(scope, payload):
        raise ValueError("its checksum differs")
    return parse_json(payload)
