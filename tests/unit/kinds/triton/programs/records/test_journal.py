"""The journal: frames that are whole count, whatever lies between them."""

import os
import random
import threading

import pytest

from silo.errors import BundleError
from silo.kinds.triton.programs.records.journal import MARK, Journal, JournalPlace


def filled(journal, count, start=0):
    for number in range(start, start + count):
        with journal.locked():
            journal.append({"number": number}, bytes([number % 256]) * (number * 7 % 300))


def contents(journal, *since):
    """The documents and bytes of all records, and the place after them."""
    found = []
    place = journal.read(lambda record: found.append((record.document, record.read_bytes())), *since)
    return found, place


def numbers(journal, *since):
    return [document["number"] for document, _ in contents(journal, *since)[0]]


def test_records_come_back_in_order_with_their_bytes(tmp_path):
    journal = Journal(tmp_path / "j")
    assert contents(journal) == ([], JournalPlace())
    filled(journal, 20)
    records, place = contents(journal)
    assert records[5] == ({"number": 5}, b"\x05" * 35)
    assert contents(journal, place) == ([], place)
    filled(journal, 2, 20)
    assert numbers(journal, place) == [20, 21]


def test_torn_and_altered_frames_cost_themselves_alone(tmp_path):
    """Every cut of the last frame, and every flipped byte, of a journal that goes on afterwards."""
    journal = Journal(tmp_path / "j")
    filled(journal, 6)
    whole = journal.path.read_bytes()
    chance = random.Random(1)
    for _ in range(300):
        cut = chance.randrange(len(whole) + 1)
        data = bytearray(whole[:cut])
        flipped = chance.randrange(cut) if cut and chance.random() < 0.5 else None
        if flipped is not None:
            data[flipped] ^= 1 << chance.randrange(8)
        journal.path.write_bytes(data)
        _, place = contents(journal)
        before = numbers(journal)
        filled(journal, 1, 100)
        found = numbers(journal)
        assert found == [*before, 100]
        assert before == sorted(before)
        assert len(before) >= 4 or cut < len(whole) * 0.9
        assert numbers(journal, place)[-1] == 100


def test_bytes_that_look_like_a_frame_are_bytes(tmp_path):
    journal = Journal(tmp_path / "j")
    filled(journal, 1)
    inner = journal.path.read_bytes()
    with journal.locked():
        journal.append({"number": 7}, inner)
        journal.append({"number": 8}, MARK[:-2] + b"\0" + MARK)
    assert numbers(journal) == [0, 7, 8]
    assert [data for _, data in contents(journal)[0]][1:] == [inner, MARK[:-2] + b"\0" + MARK]


def test_threads_and_other_journals_of_the_file_take_turns(tmp_path):
    def write(start):
        filled(Journal(tmp_path / "j"), 25, start)

    threads = [threading.Thread(target=write, args=(start * 100,)) for start in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = numbers(Journal(tmp_path / "j"))
    assert sorted(found) == [start * 100 + one for start in range(4) for one in range(25)]


def test_a_removed_journal_is_made_anew_and_read_from_its_beginning(tmp_path):
    journal = Journal(tmp_path / "j")
    filled(journal, 3)
    _, place = contents(journal)
    with journal.locked():
        journal.remove()
    filled(journal, 1, 50)
    assert numbers(journal, place) == [50]


def test_a_child_made_by_fork_inside_the_lock_waits_for_its_parent(tmp_path):
    journal = Journal(tmp_path / "j")
    reading, writing = os.pipe()
    with journal.locked():
        child = os.fork()
        if child == 0:
            os.close(reading)
            os._exit(0)
        journal.append({"number": 1})
    os.waitpid(child, 0)
    os.close(writing)
    assert numbers(journal) == [1]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_cannot_be_written_is_an_error(tmp_path):
    tmp_path.chmod(0o500)
    with pytest.raises(BundleError, match="nothing can be recorded"), Journal(tmp_path / "j").locked():
        pass


def test_a_full_disk_is_an_error_and_takes_back_what_was_begun(tmp_path, monkeypatch):
    journal = Journal(tmp_path / "j")
    filled(journal, 2)

    def full(descriptor, data):
        os.write(descriptor, bytes(data)[:10])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("silo.store.records.write_all", full)
    with pytest.raises(BundleError, match="No space left"), journal.locked():
        journal.append({"number": 9})
    monkeypatch.undo()
    filled(journal, 1, 2)
    assert numbers(journal) == [0, 1, 2]
