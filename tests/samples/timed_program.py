"""Runs programs that may hang: each has a session of its own, and is killed with all its processes."""

import os
import signal
import subprocess

import pytest


def run_timed(command, environment, limit_s):
    """Run ``command``; return (status, standard output, standard error).

    The test fails if it takes ``limit_s`` seconds.
    """
    program = subprocess.Popen(
        command,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        said, complained = program.communicate(timeout=limit_s)
    except subprocess.TimeoutExpired:
        pytest.fail(f"it hangs: {command}")
    finally:
        if program.poll() is None:
            os.killpg(program.pid, signal.SIGKILL)
            program.communicate()  # waits for its end, and closes the pipes
    return program.returncode, said, complained
