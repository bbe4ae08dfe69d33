"""Runs functions in forked children, with a time limit."""

import os
import signal
import time
import traceback
from collections.abc import Callable


def start(work: Callable[[], object]) -> int:
    """Run ``work`` in a forked child; return the child's process id."""
    number = os.fork()
    if number == 0:
        code = 1
        try:
            work()
            code = 0
        except BaseException:  # noqa: BLE001  # whatever it is, the child must not go on with the test
            traceback.print_exc()
        finally:
            os._exit(code)
    return number


def wait(number: int, seconds: float = 200) -> None:
    """Wait for a child, which must exit with 0 within ``seconds``."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        done, status = os.waitpid(number, os.WNOHANG)
        if done:
            code = os.waitstatus_to_exitcode(status)
            assert code == 0, f"the child ended with {code}; its standard error says why"
            return
        time.sleep(0.005)
    os.kill(number, signal.SIGKILL)
    os.waitpid(number, 0)
    raise AssertionError("the child hangs")


def run(work: Callable[[], object], seconds: float = 200) -> None:
    """Run ``work`` in a forked child, which must exit with 0 within ``seconds``."""
    wait(start(work), seconds)
