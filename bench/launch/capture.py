"""Finds out what a call launches: captures it into a CUDA graph, and reads the graph's nodes by the driver API."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass

THREAD_LOCAL = 1  # CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
KERNEL_NODE = 0  # CU_GRAPH_NODE_TYPE_KERNEL


class CaptureError(RuntimeError):
    """Raised if the work could not be captured."""


class _KernelNode(ctypes.Structure):
    """CUDA_KERNEL_NODE_PARAMS, version 2."""

    _fields_ = (
        ("function", ctypes.c_void_p),
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("shared", ctypes.c_uint),
        ("parameters", ctypes.c_void_p),
        ("extra", ctypes.c_void_p),
        ("kernel", ctypes.c_void_p),
        ("context", ctypes.c_void_p),
    )


@dataclass(frozen=True)
class Launched:
    """The grid and block of one kernel of a graph."""

    grid: tuple[int, ...]
    block: tuple[int, ...]


def captured(stream: int, work: Callable[[], object], library: str = "libcuda.so.1") -> list[Launched]:
    """Return the kernels that ``work`` launches on a stream (not the default one), without running them.

    Raises:
        CaptureError: the driver refused, or something other than kernels was captured.
    """
    driver = ctypes.CDLL(library)
    graph = ctypes.c_void_p()
    _check(driver.cuStreamBeginCapture_v2(ctypes.c_void_p(stream), THREAD_LOCAL), "cuStreamBeginCapture")
    try:
        work()
    finally:
        code = driver.cuStreamEndCapture(ctypes.c_void_p(stream), ctypes.byref(graph))
    _check(code, "cuStreamEndCapture")
    try:
        return [_kernel(driver, node) for node in _nodes(driver, graph)]
    finally:
        driver.cuGraphDestroy(graph)


def _nodes(driver: ctypes.CDLL, graph: ctypes.c_void_p) -> list[ctypes.c_void_p]:
    count = ctypes.c_size_t()
    _check(driver.cuGraphGetNodes(graph, None, ctypes.byref(count)), "cuGraphGetNodes")
    nodes = (ctypes.c_void_p * max(1, count.value))()
    _check(driver.cuGraphGetNodes(graph, nodes, ctypes.byref(count)), "cuGraphGetNodes")
    return [ctypes.c_void_p(nodes[index]) for index in range(count.value)]


def _kernel(driver: ctypes.CDLL, node: ctypes.c_void_p) -> Launched:
    kind = ctypes.c_int()
    _check(driver.cuGraphNodeGetType(node, ctypes.byref(kind)), "cuGraphNodeGetType")
    if kind.value != KERNEL_NODE:
        raise CaptureError(f"a node of type {kind.value}, not a kernel")
    parameters = _KernelNode()
    _check(driver.cuGraphKernelNodeGetParams_v2(node, ctypes.byref(parameters)), "cuGraphKernelNodeGetParams")
    return Launched(tuple(parameters.grid), tuple(parameters.block))


def _check(code: int, what: str) -> None:
    if code:
        raise CaptureError(f"{what}: CUDA error {code}")
