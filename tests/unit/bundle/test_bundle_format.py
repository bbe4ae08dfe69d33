import struct

import pytest

from silo.bundle.format import HEADER_BYTES, MAGIC, Header, aligned, pack_header
from silo.bundle.reader import Bundle
from silo.errors import BundleFormatError, BundleVersionError

GOOD = Header(1, 0, zstd_manifest=True, manifest_offset=128, manifest_bytes=72, manifest_sha256=bytes(range(32)))


def test_the_layout_is_the_one_in_the_specification():
    data = pack_header(GOOD)
    assert len(data) == HEADER_BYTES == 64
    assert data == MAGIC + struct.pack("<HHIQQ", 1, 0, 1, 128, 72) + bytes(range(32))


@pytest.mark.parametrize(("offset", "expected"), [(0, 0), (1, 64), (63, 64), (64, 64), (65, 128)])
def test_alignment(offset, expected):
    assert aligned(offset) == expected


@pytest.mark.parametrize("length", range(HEADER_BYTES))
def test_a_truncated_header_is_refused(length):
    with pytest.raises(BundleFormatError, match="truncated") as caught:
        Bundle.from_bytes(pack_header(GOOD)[:length])
    assert caught.value.field == "header"
    assert caught.value.offset == length


def patched(at, form, value):
    data = bytearray(pack_header(GOOD))
    struct.pack_into(form, data, at, value)
    return bytes(data)


@pytest.mark.parametrize(
    ("data", "field", "offset"),
    [
        (b"PK\x03\x04" + bytes(100), "magic", 0),
        (b"\x7fELF", "magic", 0),
        (patched(0, "<B", 0), "magic", 0),
        (patched(8, "<H", 0), "major", 8),
        (patched(12, "<I", 3), "flags", 12),
        (patched(12, "<I", 1 << 31), "flags", 12),
        (patched(16, "<Q", 0), "manifest_offset", 16),
        (patched(16, "<Q", 129), "manifest_offset", 16),
        (patched(24, "<Q", 0), "manifest_bytes", 24),
        (patched(24, "<Q", 71), "manifest_bytes", 24),
        (patched(24, "<Q", 73), "manifest_bytes", 24),
        (patched(24, "<Q", (256 << 20) + 1), "manifest_bytes", 24),
        (patched(24, "<Q", (1 << 64) - 1), "manifest_bytes", 24),
        (patched(16, "<Q", (1 << 64) - 64), "manifest_bytes", 24),
    ],
)
def test_a_wrong_header_names_field_and_offset(data, field, offset):
    with pytest.raises(BundleFormatError, match=r"k\.silo") as caught:
        Bundle.from_bytes(data.ljust(200, b"\0"), "k.silo")
    assert caught.value.field == f"header.{field}"
    assert caught.value.offset == offset


@pytest.mark.parametrize(("at", "value", "shown"), [(8, 2, r"2\.0"), (10, 10, r"1\.10"), (8, 999, r"999\.0")])
def test_a_newer_format_is_refused_with_both_versions(at, value, shown):
    with pytest.raises(BundleVersionError, match=rf"k\.silo.*{shown}.*newer Silo.*1\.9.*update"):
        Bundle.from_bytes(patched(at, "<H", value).ljust(200, b"\0"), "k.silo")
