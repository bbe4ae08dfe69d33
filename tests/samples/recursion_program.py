"""Calls of kernels inside calls without an end; ``native/test_hostile_arguments.py`` runs them."""
# pyright: reportCallIssue=false

import sys
import threading
from types import SimpleNamespace

import numpy as np

import launch_kernels as kernels
from hostile_arrays import Duck
from silo.errors import ArgumentError
from silo.launch import native
from silo.launch.hooks import on_launch

COUNT = 64


def launch_again(what):
    launch, _ = kernels.nothing(*(f"p{index}" for index in range(COUNT)))
    arguments = [np.zeros(16, np.float32) for _ in range(COUNT)]
    depth = 0

    def again(*_):
        nonlocal depth
        depth += 1
        launch[again if what == "grid" else 1](*arguments)
        return (1,)

    launch[1](*arguments)
    if what == "argument":

        class Calls(Duck):
            def data_ptr(self):
                again()
                return 4096

        arguments[-1] = Calls()
    if what == "descriptor":

        class Descriptor(SimpleNamespace):
            @property
            def base(self):
                again()

        native.adapt_descriptor(Descriptor)
        arguments[-1] = Descriptor()
    remove = on_launch(again) if what == "hook" else None
    try:
        again()
    except (ArgumentError, RecursionError) as error:
        found = error
    if remove is not None:
        remove()
    causes = [found]
    while causes[-1].__cause__ is not None:
        causes.append(causes[-1].__cause__)
    assert any(isinstance(one, RecursionError) and "used up the stack" in str(one) for one in causes), found
    assert depth > 20
    launch[1](*[np.zeros(16, np.float32) for _ in range(COUNT)])


def main(what, where):
    sys.setrecursionlimit(10**6)
    if where == "main":
        launch_again(what)
        return
    threading.stack_size(2 << 20)
    failed = []

    def body():
        try:
            launch_again(what)
        except BaseException as error:
            failed.append(error)
            raise

    thread = threading.Thread(target=body)
    thread.start()
    thread.join()
    assert not failed


if __name__ == "__main__":
    main(*sys.argv[1:])
