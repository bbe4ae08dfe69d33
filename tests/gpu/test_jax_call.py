"""``silo.jax_call`` on an NVIDIA GPU: right inside ``jit``, ``vmap`` and ``grad``, on XLA's stream, in CUDA graphs.

jax takes most of a GPU's memory when it starts, unless XLA_PYTHON_CLIENT_PREALLOCATE=false.
"""
# pyright: reportMissingImports=false, reportCallIssue=false

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

jax = pytest.importorskip("jax", reason="jax is not installed here")

import jax.numpy as jnp  # noqa: E402

sys.path.insert(0, str(Path(__file__).parents[1] / "samples"))
import counting_driver  # noqa: E402
import silo  # noqa: E402
from jax_kernels import add, added, axpy_kernel, layer_norm, layer_norm_of_jax, softmax  # noqa: E402
from silo.errors import NoVariantError  # noqa: E402
from silo.settings import override  # noqa: E402

pytestmark = pytest.mark.usefixtures("store")
CLOSE = {"rtol": 2e-4, "atol": 2e-4}


@pytest.fixture(scope="module", autouse=True)
def jax_on_a_gpu():
    try:
        jax.devices("cuda")
    except RuntimeError as error:
        pytest.skip(f"jax has no GPU: {error}")


def normal(*shape):
    return jnp.asarray(np.random.default_rng(1).standard_normal(shape), "float32")


def examples():
    x = normal(64, 1000)
    return {
        "add": (added, jnp.add, (x, x + 1)),
        "softmax": (softmax, jax.nn.softmax, (x,)),
        "layer_norm": (layer_norm, layer_norm_of_jax, (x, normal(1000), normal(1000))),
    }


@pytest.mark.parametrize("name", ["add", "softmax", "layer_norm"])
def test_jit_vmap_and_grad(name):
    ours, wanted, args = examples()[name]
    np.testing.assert_allclose(jax.jit(ours)(*args), wanted(*args), **CLOSE)
    batch = tuple(jnp.stack([one, one + 1, 2 * one]) for one in args)
    np.testing.assert_allclose(jax.jit(jax.vmap(ours))(*batch), jax.vmap(wanted)(*batch), **CLOSE)
    gradient = jax.jit(jax.grad(lambda *a: (ours(*a) ** 2).sum()))(*args)
    np.testing.assert_allclose(gradient, jax.grad(lambda *a: (wanted(*a) ** 2).sum())(*args), **CLOSE)


def test_updates_in_donated_memory():
    x, y = normal(4096), normal(4096)
    wanted = np.asarray(y) + 0.5 * np.asarray(x)
    step = jax.jit(lambda x, y: silo.jax_call(axpy_kernel, x, y, y.size, 0.5, aliases=("y",)), donate_argnums=1)
    np.testing.assert_allclose(step(x, y), wanted, **CLOSE)


def test_order_with_xlas_own_code():
    x = normal(1 << 22)

    @jax.jit
    def chain(x):
        for _ in range(20):
            x = add(jnp.sin(x), jnp.cos(x))
        return x

    wanted = x
    for _ in range(20):
        wanted = jnp.sin(wanted) + jnp.cos(wanted)
    for _ in range(5):
        np.testing.assert_allclose(chain(x), wanted, **CLOSE)


def test_every_gpu():
    for device in jax.devices("cuda"):
        x = jax.device_put(normal(1000), device)
        made = jax.jit(add)(x, x)
        assert made.devices() == {device}
        np.testing.assert_array_equal(made, 2 * x)


def test_programs_that_xla_captures_into_graphs(tmp_path):
    """A driver that counts says so: launches go into a graph, and the graph's runs need none."""
    library = counting_driver.build(tmp_path)
    if library is None:
        pytest.skip("needs a C compiler")
    code = """
import os, sys
import jax, numpy as np, jax.numpy as jnp
from counting_driver import Counts
from jax_kernels import add, softmax
x = jnp.arange(64 * 128, dtype="float32").reshape(64, 128) / 1000
function = jax.jit(lambda x: softmax(add(softmax(x), x)))
wanted = jax.nn.softmax(jax.nn.softmax(x) + x)
counts = Counts(os.environ["SILO_CUDA_LIBRARY"])
seen = []
for _ in range(10):
    np.testing.assert_allclose(function(x), wanted, rtol=1e-4)
    seen.append((counts.launches, counts.captured))
print(seen, file=sys.stderr)
assert counts.captured >= 3, "XLA captured no launch"
assert counts.launches < 30, "each run launched every kernel"
"""
    flags = "--xla_gpu_enable_command_buffer=FUSION,CUSTOM_CALL --xla_gpu_graph_min_graph_size=1"
    samples = str(Path(__file__).parents[1] / "samples")
    path = os.pathsep.join([samples, *sys.path])
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "XLA_FLAGS": flags, "PYTHONPATH": path, "SILO_CUDA_LIBRARY": str(library)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]


def test_kernels_of_bundles(tmp_path):
    """Here, and in an exported program in another process, which has neither the bundle nor Triton."""
    from silo.commands.build_bundle import build_bundle

    home = tmp_path / "home"
    source = tmp_path / "kernels_of_bundle.py"
    source.write_text(BUNDLED)
    with override(home=home, tune="off"):
        build_bundle([source], tmp_path / "k.silo", targets=["cuda"], tune="off")
        kernels = silo.load(tmp_path / "k.silo")
        x, y = normal(1000), normal(1000)
        function = jax.jit(lambda x, y: silo.jax_call(kernels["add"], x, y, x.size, out={"out": "x"}))
        np.testing.assert_array_equal(function(x, 2 * y), x + 2 * y)
        batch = jnp.stack([x, y, x * y])[:, :7]
        made = jax.vmap(lambda a: silo.jax_call(kernels["add"], a, a, 7, out={"out": "x"}))(batch)
        np.testing.assert_array_equal(made, 2 * batch)
        with pytest.raises(NoVariantError, match="no variant fits add"):
            silo.jax_call(kernels["add"], *(jnp.arange(8) for _ in "xy"), 8, out={"out": "x"})
        allowed = [jax.export.DisabledSafetyCheck.custom_call("silo_launch")]
        kept = jax.export.export(function, platforms=["cuda"], disabled_checks=allowed)(x, y).serialize()
    (tmp_path / "program").write_bytes(kept)
    (tmp_path / "k.silo").unlink()
    code = """
import sys
import jax, numpy as np
from silo.integrations import jax as seam
seam.connect()
exported = jax.export.deserialize(open(sys.argv[1], "rb").read())
x = np.arange(1000, dtype="float32")
np.testing.assert_array_equal(exported.call(x, x + 1), 2 * x + 1)
assert "triton" not in sys.modules
"""
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "program")],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "SILO_HOME": str(home)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]


BUNDLED = """
import triton
import triton.language as tl

import silo


@silo.kernel(space={"BLOCK": [128, 256]}, grid=lambda a: (silo.cdiv(a.n, a.BLOCK),))
@triton.jit
def add(x, y, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, mask=i < n) + tl.load(y + i, mask=i < n), mask=i < n)


@add.cases(n=[1000])
def _(n, make):
    return silo.Case(args=(make.normal(n), make.normal(n), make.empty(n), n))
"""


def test_an_exported_program_runs_again():
    x = normal(1000)
    allowed = [jax.export.DisabledSafetyCheck.custom_call("silo_launch")]
    kept = jax.export.export(jax.jit(add), platforms=["cuda"], disabled_checks=allowed)(x, x).serialize()
    np.testing.assert_array_equal(jax.export.deserialize(kept).call(x, x), 2 * x)
