"""Arrays whose buffers cannot say their dtype, and tensors that stand for others: read right, or refused with words."""
# pyright: reportAttributeAccessIssue=false

import mmap

import numpy as np
import pytest

pytest.importorskip("triton", reason="these tests compile Triton kernels")

import triton
import triton.language as tl

import silo
from silo.errors import ArgumentError
from silo.launch import arrays_without_memory, native

NARROW = ["bfloat16", "float8_e4m3fn", "float8_e5m2"]


@silo.kernel(tune="off")
@triton.jit
def doubled(x, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, mask=i < n).to(tl.float32) * 2, mask=i < n)


@silo.kernel(tune="off")
@triton.jit
def overwritten(x, BLOCK: tl.constexpr):
    tl.store(x + tl.arange(0, BLOCK), tl.zeros((BLOCK,), tl.float32).to(x.dtype.element_ty))


def result_of(x):
    out = np.zeros(8, np.float32)
    doubled[(1,)](x, out, 8, BLOCK=8)
    return out.tolist()


# The numbers 0 to 7 in each type.
BITS = {
    "bfloat16": np.arange(8, dtype=np.float32).view(np.uint32) >> 16,
    "float8_e4m3fn": np.array([0, 0x38, 0x40, 0x44, 0x48, 0x4A, 0x4C, 0x4E]),
    "float8_e5m2": np.array([0, 0x3C, 0x40, 0x42, 0x44, 0x45, 0x46, 0x47]),
}


def buffer(name):
    width = np.uint16 if name == "bfloat16" else np.uint8
    return silo.Buffer.of(BITS[name].astype(width).tobytes(), name)


class Producer:
    """Nothing but capsules."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **keywords):
        return self.array.__dlpack__(**keywords)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


class Immutable(mmap.mmap):
    """As jax's arrays: a type with buffers, whose buffers fail for these dtypes, and with capsules."""

    def __new__(cls, array):
        made = super().__new__(cls, -1, 16)
        made.close()  # so that it has no buffer any more
        made.array = array
        return made

    def __dlpack__(self):
        return self.array.__dlpack__()

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()

    shape = (8,)


@pytest.mark.parametrize("name", NARROW)
@pytest.mark.parametrize("kind", [Producer, Immutable])
def test_capsules_of_narrow_floats(kind, name):
    assert result_of(kind(buffer(name))) == [0, 2, 4, 6, 8, 10, 12, 14]


def test_where_the_buffer_fails_the_capsule_is_taken_and_is_not_written():
    x = Immutable(buffer("bfloat16"))
    assert native.adapter(Immutable) == "buffer"
    with pytest.raises(ValueError, match="mmap closed"):
        memoryview(x)
    with pytest.raises(ArgumentError, match="read-only"):
        overwritten[(1,)](x, BLOCK=8)
    overwritten[(1,)](Producer(x.array), BLOCK=8)
    assert result_of(x) == [0] * 8


def test_an_array_with_a_failing_buffer_and_nothing_else_says_why():
    closed = mmap.mmap(-1, 16)
    closed.close()
    with pytest.raises(ArgumentError, match="argument 'x' needs an array") as caught:
        result_of(closed)
    assert "mmap closed" in str(caught.value.__cause__)


@pytest.mark.parametrize("name", ["float32", *NARROW, "float8_e5m2fnuz"])
def test_arrays_of_jax(name):
    jnp = pytest.importorskip("jax.numpy", reason="jax is not installed here", exc_type=ImportError)
    x = jnp.arange(8).astype(getattr(jnp, name))
    assert result_of(x) == [0, 2, 4, 6, 8, 10, 12, 14]
    with pytest.raises(ArgumentError, match="read-only"):
        overwritten[(1,)](x, BLOCK=8)


# ---- torch's tensors that stand for others ----


def torch_cases():
    """Name, how it comes to a call, what the message has to say."""

    def fake(torch, call):
        from torch._subclasses.fake_tensor import FakeTensorMode

        with FakeTensorMode():
            x = torch.empty(8)
        call(x)

    def functional(torch, call):
        call(torch._to_functional_tensor(torch.zeros(8)))

    def traced(torch, call):
        from torch._subclasses.functional_tensor import FunctionalTensor, FunctionalTensorMode

        with FunctionalTensorMode():
            call(FunctionalTensor.to_functional(torch.zeros(8)))

    def wrapper(torch, call):
        class Pair(torch.Tensor):
            @staticmethod
            def __new__(cls, inside):
                return torch.Tensor._make_wrapper_subclass(cls, inside.shape, dtype=inside.dtype)

            @classmethod
            def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
                return NotImplemented

        call(Pair(torch.zeros(8)))

    def freed(torch, call):
        x = torch.zeros(8)
        x.untyped_storage().resize_(0)
        call(x)

    return {
        "vmap": (lambda torch, call: torch.vmap(call)(torch.zeros(2, 8)), "one example of a batch inside torch.vmap"),
        "grad": (lambda torch, call: torch.func.grad(call)(torch.zeros(8)), "tracks gradients inside torch.func"),
        "jvp": (lambda torch, call: torch.func.jvp(call, (torch.zeros(8),), (torch.zeros(8),)), "tracks gradients"),
        "functionalize": (
            lambda torch, call: torch.func.functionalize(call)(torch.zeros(8)),
            r"a functional tensor.*_from_functional_tensor",
        ),
        "functional": (functional, "a functional tensor"),
        "functional while tracing": (traced, "a functional tensor"),
        "fake": (fake, r"a fake tensor.*silo\.torch_op"),
        "meta": (lambda torch, call: call(torch.zeros(8, device="meta")), "a meta tensor.*make it on a device"),
        "sparse": (lambda torch, call: call(torch.zeros(8).to_sparse()), r"not laid out by strides.*t\.to_dense"),
        "wrapper": (wrapper, "of a class that wraps other tensors.*pass the tensors inside"),
        "freed": (freed, "its memory was freed"),
    }


@pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")  # torch's own, in its jvp
@pytest.mark.parametrize("name", torch_cases())
def test_tensors_that_stand_for_others_say_what_they_are(monkeypatch, name):
    monkeypatch.setattr(arrays_without_memory, "_tracers", [])  # so that torch is not asked to trace the call
    torch = pytest.importorskip("torch", reason="torch is not installed here")
    run, said = torch_cases()[name]

    def call(x):
        doubled[(1,)](x, torch.zeros(8), 8, BLOCK=8)
        return x.sum()

    result_of(torch.arange(8.0))  # so that torch is read as it is in most programs
    with pytest.raises(ArgumentError, match=rf"doubled: argument 'x' needs an array.*{said}"):
        run(torch, call)


def test_subclasses_with_memory_of_their_own_are_arrays():
    torch = pytest.importorskip("torch", reason="torch is not installed here")

    class Mine(torch.Tensor):
        pass

    assert result_of(torch.arange(8.0).as_subclass(Mine)) == [0, 2, 4, 6, 8, 10, 12, 14]
    assert result_of(torch.nn.Parameter(torch.arange(8.0))) == [0, 2, 4, 6, 8, 10, 12, 14]
