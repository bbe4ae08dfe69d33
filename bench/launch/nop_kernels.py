"""Triton kernels that do nothing; Triton keeps parameters that a kernel does not use."""

import triton
import triton.language as tl


@triton.jit
def nop_0():
    pass


@triton.jit
def nop_1(p0):
    pass


@triton.jit
def nop_8(p0, p1, p2, p3, p4, n0, n1, n2):
    pass


@triton.jit
def nop_20(p0, p1, p2, p3, p4, p5, p6, p7, p8, p9, p10, p11, n0, n1, n2, n3, n4, n5, n6, n7):
    pass


@triton.jit
def nop_58(
    p0,
    p1,
    p2,
    p3,
    p4,
    p5,
    p6,
    p7,
    p8,
    p9,
    p10,
    p11,
    p12,
    p13,
    n0,
    n1,
    n2,
    n3,
    n4,
    n5,
    n6,
    n7,
    n8,
    n9,
    n10,
    n11,
    n12,
    n13,
    n14,
    n15,
    n16,
    n17,
    n18,
    n19,
    n20,
    n21,
    n22,
    n23,
    n24,
    n25,
    C0: tl.constexpr,
    C1: tl.constexpr,
    C2: tl.constexpr,
    C3: tl.constexpr,
    C4: tl.constexpr,
    C5: tl.constexpr,
    C6: tl.constexpr,
    C7: tl.constexpr,
    C8: tl.constexpr,
    C9: tl.constexpr,
    C10: tl.constexpr,
    C11: tl.constexpr,
    C12: tl.constexpr,
    C13: tl.constexpr,
    C14: tl.constexpr,
    C15: tl.constexpr,
    C16: tl.constexpr,
    C17: tl.constexpr,
):
    pass
