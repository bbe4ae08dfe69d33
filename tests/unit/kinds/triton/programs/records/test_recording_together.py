"""Many processes that record into one bundle: what was decided first holds for all, whenever one of them folds."""

import os
import random

import pytest

from silo.core.config import Config
from silo.core.device import Target
from silo.kinds.triton.programs.records.archive import Archive, ForeignWinner
from silo.kinds.triton.programs.records.journal import Journal, journal_of
from silo.kinds.triton.programs.records.journal_folding import fold


def winner(number, block=0):
    return ForeignWinner("k", "0" * 64, Target.parse("cpu:x86-64-v3"), ("n",), (number,), Config.of({"BLOCK": block}))


def test_a_journal_that_was_folded_is_another_one_also_under_its_inode(tmp_path):
    """Most file systems give the inode of the removed journal to the next one."""
    path = tmp_path / "K.silo"
    waiting, other = Archive(path), Archive(path)
    other.decide(winner(1, 64))
    assert waiting.winner(winner(1).slot) == winner(1, 64)
    other.decide(winner(2, 64))
    inode = journal_of(path).stat().st_ino
    fold(path)
    assert waiting.winner(winner(2).slot) == winner(2, 64), inode
    assert waiting.decide(winner(2, 128)) == winner(2, 64)


def test_a_second_fold_is_seen_too(tmp_path):
    path = tmp_path / "K.silo"
    waiting, other = Archive(path), Archive(path)
    for number in range(8):
        other.decide(winner(number, 64))
        fold(path)
        assert waiting.decide(winner(number, 128)) == winner(number, 64)
        fold(path)


def test_a_journal_whose_maker_was_killed_is_named_by_the_next(tmp_path):
    journal = Journal(tmp_path / "j")
    journal.path.write_bytes(b"SILO-JOUR")
    with journal.locked():
        journal.append({"number": 1})
    found = []
    assert len(journal.read(lambda record: found.append(record.document)).identity) == 32
    assert found == [{"number": 1}]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the processes are made by fork")
def test_processes_that_disagree_agree_whoever_folds_when(tmp_path):
    """Eight processes, each with a config of its own for every key; they fold in between, as processes that end do."""
    path = tmp_path / "K.silo"
    keys, children = 40, 8

    def work(place):
        chance = random.Random(place)
        recording = Archive(path)
        found = []
        for key in range(keys):
            known = recording.winner(winner(key).slot)
            chosen = known or recording.decide(winner(key, place))
            found.append(chosen.config.as_dict()["BLOCK"])
            if chance.random() < 0.2:
                fold(path)
        (tmp_path / f"found-{place}").write_text(repr(found))

    started = []
    for place in range(children):
        child = os.fork()
        if child == 0:
            status = 1
            try:
                work(place)
                status = 0
            finally:
                os._exit(status)
        started.append(child)
    assert [os.waitpid(child, 0)[1] for child in started] == [0] * children
    found = {(tmp_path / f"found-{place}").read_text() for place in range(children)}
    assert len(found) == 1, found
    fold(path)
    after = Archive(path)
    assert repr([after.winner(winner(key).slot).config.as_dict()["BLOCK"] for key in range(keys)]) in found
