"""Calls from programs of jax that cannot be: each is an error that names the cure."""
# pyright: reportMissingImports=false, reportCallIssue=false

import os

import numpy as np
import pytest
import triton
import triton.language as tl

import silo
from silo.errors import ArgumentError, PackageError, SourceError, UnsupportedError
from silo.launch import jax_versions

os.environ.setdefault("JAX_PLATFORMS", "cpu")

jax = pytest.importorskip("jax", reason="jax is not installed")

import jax.numpy as jnp  # noqa: E402

import jax_kernels as kernels  # noqa: E402
from jax_kernels import add, axpy_kernel  # noqa: E402


def normal(*shape):
    return jnp.asarray(np.random.default_rng(3).standard_normal(shape), "float32")


def test_calls_that_do_not_fit():
    x = normal(16)
    call, kernel, like = silo.jax_call, kernels.add_kernel, {"out": "x"}
    for wrong, error, said in (
        (lambda: call(add, x, out=like), ArgumentError, r"takes a kernel that silo\.kernel made"),
        (lambda: call(kernel, x, x, 16), ArgumentError, r"name what the kernel makes in out="),
        (
            lambda: call(kernel, x, x, 16, out=["out"]),
            ArgumentError,
            r"out= says of each parameter that the call makes what",
        ),
        (lambda: call(kernel, x, x, 16, out={"none": "x"}), ArgumentError, r"out= names none, and its parameters"),
        (
            lambda: call(kernel, x, x, 16, out={"out": "z"}),
            ArgumentError,
            r"like 'z', and the arrays of the call are x, y",
        ),
        (lambda: call(kernel, x, x, 16, out={"out": 3}), ArgumentError, r"out= says of out 3: give the name"),
        (
            lambda: call(kernel, x, x, 16, 1, out=like),
            ArgumentError,
            r"was given 4 arguments, and takes 3 here: x, y, n",
        ),
        (lambda: call(kernel, x, x, out=like), ArgumentError, r"leaves out n|argument n is missing"),
        (lambda: call(kernel, x, x, 16, out=like, x=x), ArgumentError, r"x was given twice"),
        (lambda: call(kernel, x, x, 16, out=like, odd=1), ArgumentError, r"add_kernel takes no odd"),
        (
            lambda: call(kernel, x, x, 16, out=like, aliases=("out",)),
            ArgumentError,
            r"aliases= names out, and the arrays that the call",
        ),
        (lambda: call(kernel, x, x, 16, out=like, vmap_method="x"), ArgumentError, r"vmap_method='x': it is one of"),
        (lambda: call(kernel, x, x, 16, out=like, grid=()), ArgumentError, r"a grid has 1 to 3 axes"),
        (lambda: call(kernel, x, x, 16, out=like, grid=(0,)), ArgumentError, r"so that nothing runs, and out has"),
        (lambda: call(kernel, x, x, 0, out=like), ArgumentError, r"so that nothing runs, and out has elements"),
        (lambda: call(kernel, x, x, 16, out=like, grid="x"), ArgumentError, r"the grid is 'x', and a launch"),
        (lambda: call(kernel, x, x, 16, out=like, grid=lambda _: 0.5), ArgumentError, r"its grid function gave 0\.5"),
        (lambda: call(kernel, x, x, object(), out=like), ArgumentError, r"n is <object"),
        (lambda: call(kernel, x, x, {}, out=like), ArgumentError, r"jax cannot tell from others"),
        (lambda: call(kernel, x + 1j, x, 16, out=like), ArgumentError, r"x has elements of complex64, which no kernel"),
        (lambda: call(kernel, x, x, 16, out=like, BLOCK=x), ArgumentError, r"BLOCK is a constexpr of add_kernel"),
        (lambda: call(axpy_kernel, x, x, 16, 1.0, out={"y": "x"}), ArgumentError, r"takes 3 here: x, n, alpha"),
        (lambda: call(axpy_kernel, x, 16, 1.0, out={"y": "x"}), SourceError, r"may read y before it writes"),
        (lambda: call(axpy_kernel, x, x, 16, 1.0, aliases="x"), SourceError, r"writes to y, and arrays of jax do not"),
        (lambda: call(axpy_kernel, x, x, 16, 1.0, aliases=("x", "y")), SourceError, r"does not write to x, which"),
        (lambda: call(kernel, x, x, 16, out={"out": "x", "n": "x"}), ArgumentError, r"takes 2 here"),
    ):
        with pytest.raises(error, match=said):
            wrong()


def test_traced_numbers_where_the_code_wants_plain_ones():
    x = normal(16)

    @jax.jit
    def block(x, size):
        return silo.jax_call(kernels.add_kernel, x, x, 16, BLOCK=size, out={"out": "x"})

    with pytest.raises(ArgumentError, match=r"BLOCK is a constexpr .* an array that jax traces .*static_argnums"):
        block(x, 256)

    @jax.jit
    def count(x, n):
        return silo.jax_call(kernels.add_kernel, x, x, n, out={"out": "x"})

    with pytest.raises(Exception, match=r"n") as caught:
        count(x, 16)
    assert any("n: an array without axes" in note for note in caught.value.__notes__)

    @jax.jit
    def grid(x, n):
        return silo.jax_call(kernels.add_kernel, x, x, 16, out={"out": "x"}, grid=(n,))

    with pytest.raises(ArgumentError, match="compute them from shapes or static arguments, not from what jax traces"):
        grid(x, 1)

    @jax.jit
    def shape(x, n):
        like = {"out": lambda a: jax.ShapeDtypeStruct((int(n),), a.x.dtype)}
        return silo.jax_call(kernels.add_kernel, x, x, 16, out=like)

    with pytest.raises(SourceError, match="the shape of the output out depends on values that jax traces"):
        shape(x, 16)


def test_shapes_that_are_not_known_while_jax_traces():
    (size,) = jax.export.symbolic_shape("size")
    given = jax.ShapeDtypeStruct((size,), "float32")
    with pytest.raises(SourceError, match=r"the shape of x is \(size,\), of which size is not known while jax traces"):
        jax.export.export(jax.jit(lambda x: silo.jax_call(kernels.add_kernel, x, x, 16, out={"out": "x"})))(given)


def test_a_program_for_another_platform():
    x = jax.ShapeDtypeStruct((16,), "float32")
    with pytest.raises(UnsupportedError, match="programs of jax call kernels on the CPU and on CUDA"):
        jax.jit(lambda x: add(x, x)).trace(x).lower(lowering_platforms=("tpu",))


def test_a_kernel_that_hides_what_it_writes():
    @silo.kernel(grid=(1,), tune="off")
    @triton.jit
    def hidden(places, out, BLOCK: tl.constexpr):
        place = tl.load(places).to(tl.pointer_type(tl.float32))
        tl.store(place + tl.arange(0, BLOCK), 1.0)
        tl.store(out + tl.arange(0, BLOCK), 2.0)

    places = jnp.zeros(1, "int32")
    like = jax.ShapeDtypeStruct((16,), "float32")
    with pytest.raises((SourceError, silo.SiloError)):
        silo.jax_call(hidden, places, BLOCK=16, out={"out": like})


def test_a_kernel_that_fails_says_why():
    @silo.kernel(grid=(1,), tune="off")
    @triton.jit
    def picky(x, out, BLOCK: tl.constexpr):
        i = tl.arange(0, BLOCK)
        v = tl.load(x + i)
        tl.device_assert(v > 0, "not positive")
        tl.store(out + i, v)

    os.environ["TRITON_DEBUG"] = "1"
    try:
        function = jax.jit(lambda x: silo.jax_call(picky, x, BLOCK=16, debug=True, out={"out": "x"}))
        np.testing.assert_array_equal(function(jnp.ones(16)), np.ones(16))
        with pytest.raises((ValueError, jax.errors.JaxRuntimeError), match=r"silo: picky: .*not positive"):
            function(jnp.zeros(16)).block_until_ready()
    finally:
        del os.environ["TRITON_DEBUG"]


# -- versions ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("version", "said"),
    [
        ("0.10.2", "jax 0.10.2, tested"),
        ("0.12.0", "jax 0.12.0, tested"),
        ("0.13.0", "jax 0.13.0 is newer than 0.10, 0.12, which is tested"),
        ("0.7.1", "jax 0.7.1 is older than 0.10, 0.12, which is tested"),
        ("0.4.30", "is older than 0.6, the oldest in whose programs Silo can put kernels: install jax 0.12"),
    ],
)
def test_versions_of_jax(version, said):
    assert said in jax_versions.judge_version(version).reason


@pytest.mark.parametrize(
    ("version", "said"),
    [
        ((0, 2), "older than 0.3, which is tested"),
        ((0, 5), "XLA's interface 0.5"),
        ((0, 6), "newer than 0.3, which is tested"),
        ((1, 0), "has version 1.0 of XLA's foreign function interface, and Silo knows 0: install jax 0.12"),
        (None, "does not say which version"),
    ],
)
def test_versions_of_the_interface(version, said):
    assert said in jax_versions.judge_ffi(version).reason


def test_a_jax_that_is_too_old_is_refused(monkeypatch):
    monkeypatch.setattr(jax, "__version__", "0.4.1")
    with pytest.raises(PackageError, match=r"jax 0\.4\.1 is older than 0\.6"):
        jax_versions.load_jax()


def test_a_jaxlib_whose_interface_is_unknown_is_refused(monkeypatch, tmp_path):
    monkeypatch.setattr(jax.ffi, "include_dir", lambda: str(tmp_path))
    with pytest.raises(PackageError, match="does not say which version of XLA's foreign function interface"):
        jax_versions.load_jax()


def test_the_installed_jax_is_the_tested_one():
    loaded, minor = jax_versions.load_jax()
    assert loaded is jax
    assert minor in (3, 5)  # of jax 0.10, of jax 0.12
