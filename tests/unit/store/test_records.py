import logging

import pytest

from silo.errors import StoreError
from silo.forks import Notices
from silo.store.records import DiskRecords, MemoryRecords, decode_line, encode_line

RECORDS = [{"n": 1}, {"text": "line\nbreak and ünïcode"}, [1, [2, None, True]], "x", 7, {"n": 1}]


@pytest.fixture(params=["disk", "memory"])
def records(request, tmp_path):
    return DiskRecords(tmp_path, Notices()) if request.param == "disk" else MemoryRecords()


def test_records_come_back_in_order_with_repeats(records):
    for record in RECORDS:
        records.append("key", record)
    assert list(records.read("key")) == RECORDS
    assert list(records.read("other")) == []
    assert records.keys() == ("key",)


@pytest.mark.parametrize("key", ["", ".", "..", "a/b", "a b", ".hidden", "x" * 201, "ü", "a\n"])
def test_a_key_that_is_no_file_name_is_refused(records, key):
    with pytest.raises(StoreError, match="key"):
        records.append(key, 1)
    with pytest.raises(StoreError, match="key"):
        list(records.read(key))


def test_floats_are_refused(records):
    with pytest.raises(TypeError, match="float"):
        records.append("key", {"time": 1.5})
    assert list(records.read("key")) == []


def test_a_record_too_long_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("silo.store.records.MAX_RECORD_BYTES", 100)
    records = DiskRecords(tmp_path, Notices())
    with pytest.raises(StoreError, match="100"):
        records.append("key", "x" * 200)


def test_every_single_byte_of_a_line_counts():
    line = encode_line("record/key", {"n": 12, "s": "abc"}).removesuffix(b"\n")
    assert decode_line("record/key", line) == {"n": 12, "s": "abc"}
    for at in range(len(line)):
        for bit in range(8):
            wrong = line[:at] + bytes([line[at] ^ (1 << bit)]) + line[at + 1 :]
            with pytest.raises(ValueError):  # noqa: PT011  # any reason will do
                decode_line("record/key", wrong)
    for length in range(len(line)):
        with pytest.raises(ValueError):  # noqa: PT011  # any reason will do
            decode_line("record/key", line[:length])


def test_a_line_copied_from_another_key_does_not_count():
    with pytest.raises(ValueError, match="checksum"):
        decode_line("record/other", encode_line("record/key", 1).removesuffix(b"\n"))


@pytest.mark.parametrize(
    "garbage", [b"foreign\n", b'{"n": 3}\n', b"\xff\xfe\x00\n", b"00000007 0123456789abcdef {}\n", b"\n\n"]
)
def test_foreign_lines_are_skipped_and_told_once(tmp_path, caplog, garbage):
    records = DiskRecords(tmp_path, Notices())
    records.append("key", 1)
    with (tmp_path / "key.jsonl").open("ab") as file:
        file.write(garbage)
    records.append("key", 2)
    with caplog.at_level(logging.WARNING, "silo.store"):
        assert list(records.read("key")) == [1, 2]
        assert list(records.read("key")) == [1, 2]
    assert len(caplog.records) == (1 if garbage.strip() else 0)


def test_a_torn_end_at_any_place_costs_that_record_alone(tmp_path):
    records = DiskRecords(tmp_path, Notices())
    records.append("key", {"first": 1})
    path = tmp_path / "key.jsonl"
    whole = path.read_bytes()
    line = encode_line("record/key", {"second": 2})
    for length in range(1, len(line)):
        path.write_bytes(whole + line[:length])
        # All but the newline arrived: the record is whole.
        kept = [{"first": 1}, {"second": 2}] if length == len(line) - 1 else [{"first": 1}]
        assert list(records.read("key")) == kept
        records.append("key", {"third": 3})
        assert list(records.read("key")) == [*kept, {"third": 3}]


def test_bits_flipped_in_the_file_lose_only_their_record(tmp_path):
    records = DiskRecords(tmp_path, Notices())
    for number in range(5):
        records.append("key", number)
    path = tmp_path / "key.jsonl"
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0x10
    path.write_bytes(data)
    assert list(records.read("key")) == [0, 1, 3, 4]
