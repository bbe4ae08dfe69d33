"""Kernels of bundles in programs of jax: the same calls, the same errors, native code with consent alone."""
# pyright: reportMissingImports=false, reportCallIssue=false

import os
import subprocess
import sys
import textwrap

import numpy as np
import pytest

import silo
from silo.commands.build_bundle import build_bundle
from silo.errors import ArgumentError, NoVariantError, SourceError, TrustError
from silo.settings import override

os.environ.setdefault("JAX_PLATFORMS", "cpu")

jax = pytest.importorskip("jax", reason="jax is not installed")

import jax.numpy as jnp  # noqa: E402

KERNELS = """
import triton
import triton.language as tl

import silo


@silo.kernel(space={"BLOCK": [64, 128]}, grid=lambda a: (silo.cdiv(a.n, a.BLOCK),))
@triton.jit
def add(x, y, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, mask=i < n) + tl.load(y + i, mask=i < n), mask=i < n)


@silo.kernel(space={"BLOCK": [64]}, grid=lambda a: (silo.cdiv(a.n, a.BLOCK),))
@triton.jit
def axpy(x, y, n, alpha, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + i, tl.load(y + i, mask=i < n) + alpha * tl.load(x + i, mask=i < n), mask=i < n)


@silo.kernel(space={"BLOCK": [64]})
@triton.jit
def bare(x, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, mask=i < n) * 2, mask=i < n)


@triton.heuristics({"EVEN": lambda a: a["n"] % 2 == 0})
@triton.jit
def parity(x, out, n, EVEN: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, mask=i < n) + (10 if EVEN else 20), mask=i < n)


parity = silo.kernel(parity, space={"BLOCK": [64]}, grid=lambda a: (silo.cdiv(a.n, a.BLOCK),))


@silo.kernel(grid=lambda a: (1,))
@triton.jit
def behind(addresses, x, out, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    if tl.load(addresses) != 0:
        tl.store(tl.load(addresses).to(tl.int64).to(tl.pointer_type(tl.float32)) + i, 1.0)
    tl.store(out + i, tl.load(x + i))


@behind.cases()
def _(make):
    return silo.Case(args=(make.integers(2, low=0, high=1, dtype="int32"), make.normal(16), make.empty(16)),
                     kwargs={"BLOCK": 16})


@add.cases(n=[1000])
def _(n, make):
    return silo.Case(args=(make.normal(n), make.normal(n), make.empty(n), n))


@axpy.cases(n=[1000])
def _(n, make):
    return silo.Case(args=(make.normal(n), make.normal(n), n, 0.5))


@bare.cases(n=[1000])
def _(n, make):
    return silo.Case(args=(make.normal(n), make.empty(n), n), grid=(16,))


@parity.cases(n=[1000])
def _(n, make):
    return silo.Case(args=(make.normal(n), make.empty(n), n))
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with a bundle, and the store of the user who built it."""
    folder = tmp_path_factory.mktemp("bundle")
    (folder / "kernels_for_jax.py").write_text(KERNELS)
    with override(home=folder / "home", tune="off"):
        build_bundle([folder / "kernels_for_jax.py"], folder / "k.silo", targets=["cpu"], tune="off")
    return folder


@pytest.fixture
def kernels(place):
    with override(home=place / "home", tune="off"):
        yield silo.load(place / "k.silo")


def normal(*shape):
    return jnp.asarray(np.random.default_rng(3).standard_normal(shape), "float32")


def add(kernels, x, y, **more):
    return silo.jax_call(kernels["add"], x, y, x.size, out={"out": "x"}, **more)


def test_as_it_is_inside_jit_vmap_and_grad(kernels):
    x, y = normal(1000), normal(1000) * 3
    np.testing.assert_array_equal(add(kernels, x, y), x + y)
    np.testing.assert_allclose(jax.jit(lambda x, y: add(kernels, jnp.sin(x), y) * 2)(x, y), (jnp.sin(x) + y) * 2)
    batch = jnp.stack([x[:7], y[:7], x[7:14]])  # examples at any address: the generic variant
    np.testing.assert_array_equal(jax.vmap(lambda a: add(kernels, a, a))(batch), 2 * batch)

    @jax.custom_vjp
    def added(x, y):
        return add(kernels, x, y)

    added.defvjp(lambda x, y: (add(kernels, x, y), None), lambda _, grad: (grad, grad))
    found = jax.jit(jax.grad(lambda x: (added(x, y) ** 2).sum()))(x)
    np.testing.assert_allclose(found, 2 * (x + y), rtol=1e-6)


def test_by_attribute_and_with_arguments_by_name(kernels):
    x = normal(48)
    made = silo.jax_call(kernels.add, y=x, x=2 * x, n=48, out={"out": "x"})
    np.testing.assert_array_equal(made, 2 * x + x)


def test_arguments_that_are_updated(kernels):
    x, y = normal(1000), normal(1000) + 1
    made = jax.jit(lambda x, y: silo.jax_call(kernels["axpy"], x, y, y.size, 0.5, aliases=("y",)))(x, y)
    np.testing.assert_allclose(made, np.asarray(y) + 0.5 * np.asarray(x), rtol=1e-6)


def test_memory_behind_no_argument_is_told_by_the_bundle(kernels):
    addresses, x = jnp.zeros(2, "int32"), normal(16)

    def call(**more):
        return silo.jax_call(kernels["behind"], addresses, x, BLOCK=16, out={"out": "x"}, **more)

    with pytest.raises(
        SourceError, match=r"behind \(k.silo\) may write to memory that lies behind none of its arguments"
    ):
        call()
    np.testing.assert_array_equal(call(mutates=("out",)), x)


def test_grids_of_the_call(kernels):
    x = normal(1000)
    for grid in ((16,), 16, lambda meta: (-(-meta["n"] // meta["BLOCK"]),)):
        np.testing.assert_array_equal(silo.jax_call(kernels["bare"], x, 1000, out={"out": "x"}, grid=grid), 2 * x)
    with pytest.raises(ArgumentError, match=r"bare \(k.silo\) declares no grid"):
        silo.jax_call(kernels["bare"], x, 1000, out={"out": "x"})


def test_constexprs_that_the_bundle_computes(kernels):
    for n in (1000, 8):
        x = normal(n)
        np.testing.assert_array_equal(silo.jax_call(kernels["parity"], x, n, out={"out": "x"}), x + 10)
    with pytest.raises(NoVariantError, match="compiled for EVEN=True, and the call needs EVEN=False"):
        silo.jax_call(kernels["parity"], normal(1001), 1001, out={"out": "x"})


def test_bad_input(kernels):
    x = normal(1000)
    with pytest.raises(SourceError, match=r"add \(k.silo\) writes to out, and arrays of jax do not change"):
        silo.jax_call(kernels["add"], x, x, x, 1000, aliases=("x",))
    with pytest.raises(SourceError, match=r"does not write to x, which the call returns"):
        silo.jax_call(kernels["add"], x, x, 1000, out={"out": "x"}, aliases=("x",))
    with pytest.raises(SourceError, match=r"may read y before it writes .* aliases=\('y',\)"):
        silo.jax_call(kernels["axpy"], x, n=1000, alpha=0.5, out={"y": "x"})
    with pytest.raises(NoVariantError, match=r"no variant fits add.*int32") as caught:
        add(kernels, jnp.arange(1000), jnp.arange(1000))
    assert any("silo.jax_call add was read with the arrays x=int32[1000]" in one for one in caught.value.__notes__)
    with pytest.raises(ArgumentError, match="add was given 4 arguments, and takes 3 here: x, y, n"):
        silo.jax_call(kernels["add"], x, x, 1000, 5, out={"out": "x"})
    with pytest.raises(NoVariantError, match="n is an array, and it takes an integer"):
        jax.jit(lambda n: silo.jax_call(kernels["add"], x, x, n, out={"out": "x"}))(1000)
    with pytest.raises(ArgumentError, match=r"or one of a bundle, and not <kernels of k.silo"):
        silo.jax_call(kernels, x)


def run_python(code, *arguments, **variables):
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **variables},
        capture_output=True,
        text=True,
        check=False,
        timeout=250,
    )


EXPORT = """
    import sys
    import jax, numpy as np
    import silo
    kernels = silo.load(sys.argv[1], trust="--trust" in sys.argv)
    x = np.ones(1000, "float32")
    allowed = [jax.export.DisabledSafetyCheck.custom_call("silo_launch")]
    function = jax.jit(lambda x, y: silo.jax_call(kernels["add"], x, y, 1000, out={"out": "x"}))
    assert function(x, x)[999] == 2
    open(sys.argv[2], "wb").write(jax.export.export(function, disabled_checks=allowed)(x, x).serialize())
    assert "triton" not in sys.modules and "torch" not in sys.modules
"""
RUN = """
    import sys
    import jax, numpy as np
    from silo.integrations import jax as seam
    seam.connect()
    exported = jax.export.deserialize(open(sys.argv[1], "rb").read())
    x = np.arange(1000, dtype="float32")
    np.testing.assert_array_equal(exported.call(x, x + 1), 2 * x + 1)
    assert "triton" not in sys.modules
    print("equal")
"""


def test_an_exported_program_runs_in_another_process(place, tmp_path):
    """Without the bundle, which may be gone then."""
    program, home = tmp_path / "program", str(place / "home")
    done = run_python(EXPORT, place / "k.silo", program, SILO_HOME=home)
    assert done.returncode == 0, done.stderr
    done = run_python(RUN, program, SILO_HOME=home)
    assert done.stdout.strip() == "equal", done.stderr
    done = run_python(RUN, program, SILO_HOME=str(tmp_path / "empty"))
    assert "has none of that digest" in done.stderr


def test_native_code_of_a_bundle_that_nobody_vouches_for_does_not_run(place, tmp_path):
    program, home = tmp_path / "program", str(tmp_path / "home")
    with override(home=tmp_path / "fresh"):
        kernels = silo.load(place / "k.silo")
        with pytest.raises(TrustError, match=r"(?s)k.silo brings native code .*run 'silo trust"):
            add(kernels, normal(1000), normal(1000))
    done = run_python(EXPORT, place / "k.silo", program, SILO_HOME=home)
    assert "TrustError" in done.stderr
    assert not program.exists()
    # The word of one process is its own: what it exports runs elsewhere once the bundle is trusted there.
    done = run_python(EXPORT, place / "k.silo", program, "--trust", SILO_HOME=home)
    assert done.returncode == 0, done.stderr
    done = run_python(RUN, program, SILO_HOME=home)
    assert "TrustError" in done.stderr
    assert "nobody here vouches for the bundle's native code" in done.stderr
    trust = "from silo.cli.main import main; main()"
    for word, answer in (("trust", "equal"), ("untrust", "TrustError")):
        told = run_python(trust, word, place / "k.silo", SILO_HOME=home)
        assert told.returncode == 0, told.stderr
        done = run_python(RUN, program, SILO_HOME=home)
        assert answer in done.stdout + done.stderr, done.stderr
