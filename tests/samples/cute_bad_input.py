"""The faulty CuTe kernels of ``tests/unit/kinds/cute/test_cute_bad_input.py``; each thread handles one value."""
# pyright: reportMissingImports=false, reportAttributeAccessIssue=false, reportCallIssue=false

import cutlass
from cutlass import cute

import silo

# The class is in ``cutlass.memory`` from version 4.8 of the DSL on, and in ``cutlass.utils`` before.
Allocator = (cutlass.memory if hasattr(cutlass, "memory") else cutlass.utils).SmemAllocator


@cute.kernel
def plain(x: cute.Tensor, out: cute.Tensor, n: cutlass.Int32):
    thread, _, _ = cute.arch.thread_idx()
    if thread < n:
        out[thread] = x[thread]


@cute.kernel
def constant(x: cute.Tensor, out: cute.Tensor, STEP: cutlass.Constexpr):
    thread, _, _ = cute.arch.thread_idx()
    if cutlass.const_expr(STEP == 3):
        raise ValueError("a step of 3 is not supported")
    out[thread] = x[thread] + STEP


@cute.kernel
def hungry(x: cute.Tensor, out: cute.Tensor, KIB: cutlass.Constexpr):
    thread, _, _ = cute.arch.thread_idx()
    allocator = Allocator()
    room = allocator.allocate_tensor(cutlass.Float32, cute.make_layout(KIB * 256), byte_alignment=16)
    room[thread] = x[thread]
    cute.arch.sync_threads()
    out[thread] = room[127 - thread]


@cute.kernel
def dynamic_room(x: cute.Tensor, out: cute.Tensor, n: cutlass.Int32):
    thread, _, _ = cute.arch.thread_idx()
    allocator = Allocator()
    room = allocator.allocate_tensor(cutlass.Float32, cute.make_layout(n), byte_alignment=16)
    room[thread] = x[thread]
    out[thread] = room[thread]


def made(kernel, case, **more):
    """Return one of these as a Silo kernel with a case, whose arguments ``case(make)`` returns."""
    found = silo.cute(kernel, **{"block": 128, "grid": (1,), "name": kernel.__name__, **more})
    found.cases()(lambda make: silo.Case(args=case(make), expected={}))
    return found


def two(make):
    return make.normal(128), make.empty(128)
