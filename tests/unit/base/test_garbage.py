"""Python's collector of cycles is held back while much is made that stays, and put back as it was."""

import gc
import threading

import pytest

from silo.gc_pause import seldom_collected


@pytest.fixture(autouse=True)
def usual():
    before = gc.get_threshold()
    gc.set_threshold(700, 10, 10)
    yield
    gc.set_threshold(*before)


def test_blocks_within_blocks_end_with_the_last():
    with seldom_collected():
        with seldom_collected():
            assert gc.get_threshold() == (50_000, 10, 10)
        assert gc.get_threshold() == (50_000, 10, 10)
    assert gc.get_threshold() == (700, 10, 10)


def test_blocks_of_several_threads_end_with_the_last():
    inside, leave = threading.Event(), threading.Event()

    def other():
        with seldom_collected():
            inside.set()
            leave.wait(10)

    thread = threading.Thread(target=other)
    with seldom_collected():
        thread.start()
        inside.wait(10)
    assert gc.get_threshold() == (50_000, 10, 10)
    leave.set()
    thread.join()
    assert gc.get_threshold() == (700, 10, 10)


def test_an_error_ends_a_block():
    with pytest.raises(KeyError), seldom_collected():
        raise KeyError
    assert gc.get_threshold() == (700, 10, 10)


@pytest.mark.parametrize("own", [(0, 10, 10), (100_000, 5, 5)])
def test_a_program_that_collects_more_seldom_or_never_is_left_alone(own):
    gc.set_threshold(*own)
    with seldom_collected():
        assert gc.get_threshold() == own
    assert gc.get_threshold() == own


def test_what_a_program_sets_meanwhile_stays():
    with seldom_collected():
        gc.set_threshold(5, 5, 5)
    assert gc.get_threshold() == (5, 5, 5)
