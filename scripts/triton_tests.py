"""A plug-in of pytest that runs the tests of the Triton language, which lie in Triton's public repository, on the CPU.

In the folder ``python/test`` of a checkout of https://github.com/triton-lang/triton-cpu (whose tests take any device):

    PYTHONPATH=SILO/scripts SILO_TRITON=cpu python -m pytest -p triton_tests --device cpu --timeout 600 \
        unit/language/test_core.py unit/language/test_standard.py ...

``unit/test_debug.py`` starts a process for each assertion that fails, because a failed assertion loses the GPU. Here
the assertions run in the process of the tests. The tests of launches, tuners and caches (``unit/runtime``) can also run
by ``python -m silo exec -m pytest ...``: then Silo launches. The tests were written for a GPU, or for another compiler
for CPUs, and skip some checks on a CPU. So that they skip nothing, Triton's helper ``is_cpu`` returns False (but not in
the tests of ``_GPU_TEXT``); a test that names torch's CUDA device gets the CPU. TESTS_SAMPLE=N keeps N tests, first a
few of each function. TESTS_SHARD=2/8 keeps every eighth test, from the third on.
"""

from __future__ import annotations

import contextlib
import os
import random
from collections import Counter
from dataclasses import dataclass
from importlib import import_module
from typing import Any
from unittest import mock

__all__ = ["pytest_collection_modifyitems", "pytest_configure"]

# Tests that examine the text of a GPU's back end unless they take the device for a CPU; they always check results.
_GPU_TEXT = frozenset({"test_optimize_thread_locality"})
# Tests that require a certain text from a GPU's back end, or that refuse the CPU's tensors, with the reason to skip
# each.
_FOREIGN = {
    **dict.fromkeys(
        (
            "test_no_rematerialization_op",
            "test_disable_licm",
            "test_assume",
            "test_poison_return",
            "test_tl_range_fuse",
            "test_tl_range_fuse_dependent",
        ),
        "it looks at the text of another back end",
    ),
    "test_pointer_arguments": "it expects that arrays in host memory are refused, unless an accelerator pinned them",
}
_MAKERS = ("arange", "empty", "empty_like", "full", "ones", "rand", "randint", "randn", "tensor", "zeros", "zeros_like")


def pytest_configure() -> None:
    """Prepare Triton's helpers and torch."""
    helpers: Any = import_module("triton._internal_testing")
    helpers.is_cpu = _is_cpu
    helpers.run_in_process = _run_here
    torch: Any = import_module("torch")
    torch.cuda.device = lambda *_: contextlib.nullcontext()
    torch.cuda.synchronize = lambda *_: None
    torch.cuda.get_device_capability = lambda *_: (0, 0)
    # torch's own function returns a text, but Triton's caches are indexed by number
    torch.cpu.current_device = _current_device
    for name in _MAKERS:
        setattr(torch, name, _on_cpu(getattr(torch, name)))


@dataclass(frozen=True)
class _Result:
    """The result of a test's process, with the attributes of Triton's own class."""

    exc: BaseException | None
    driver_stderr_output: str = ""


def _run_here(client: Any, args: Any = (), kwargs: Any = None, env: Any = None) -> _Result:  # noqa: ANN401  # as Triton's
    """Call ``client`` under these variables. A failed assertion ends no process on a CPU, so none is started."""
    raised: Exception | None = None
    with mock.patch.dict(os.environ, env or {}):
        try:
            client(*args, **(kwargs or {}))
        except Exception as error:  # noqa: BLE001  # what the test looks at
            raised = error
    # reads Triton's settings anew, which were read under the variables of ``env``
    import_module("triton").knobs.refresh_knobs()
    return _Result(raised)


def _is_cpu() -> bool:
    name = os.environ.get("PYTEST_CURRENT_TEST", "").split("::")[-1].split(" ")[0].split("[")[0]
    return name in _GPU_TEXT


def _current_device() -> int:
    return import_module("triton").runtime.driver.active.get_current_device()


def _on_cpu(real: Any) -> Any:  # noqa: ANN401  # a function of torch
    def make(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        device = kwargs.get("device", "")
        if isinstance(device, int) or str(device).startswith("cuda"):
            kwargs["device"] = "cpu"
        return real(*args, **kwargs)

    return make


def pytest_collection_modifyitems(items: list[Any]) -> None:
    """Skip the tests of other back ends; keep a sample or a share of the others if the environment asks for it.

    Without TESTS_SAMPLE and TESTS_SHARD, all tests are kept in the order of their files.
    """
    skip: Any = import_module("pytest").mark.skip
    for item in items:
        reason = _FOREIGN.get(item.nodeid.split("::")[-1].split("[")[0])
        if reason is not None:
            item.add_marker(skip(reason=reason))
    if not {"TESTS_SAMPLE", "TESTS_SHARD"} & set(os.environ):
        return
    order = sorted(items, key=lambda item: item.nodeid)
    random.Random(1).shuffle(order)  # seeded, so that the order is the same in every process
    before: Counter[str] = Counter()
    ranks: dict[str, int] = {}
    for item in order:
        function = item.nodeid.split("[")[0]
        ranks[item.nodeid] = before[function]
        before[function] += 1
    order.sort(key=lambda item: ranks[item.nodeid])
    sample = int(os.environ.get("TESTS_SAMPLE", "0"))
    index, shards = (int(part) for part in os.environ.get("TESTS_SHARD", "0/1").split("/"))
    items[:] = order[: sample or None][index::shards]
