"""``silo.jax_call``: kernels inside ``jit``, ``vmap``, ``grad``, ``shard_map`` and exported programs, on the CPU."""
# pyright: reportMissingImports=false, reportCallIssue=false

import gc
import os
import subprocess
import sys
import textwrap
import threading

import numpy as np
import pytest
import triton
import triton.language as tl

import silo
from silo.errors import ArgumentError, UnsupportedError

os.environ.setdefault("JAX_PLATFORMS", "cpu")

jax = pytest.importorskip("jax", reason="jax is not installed")

import jax.numpy as jnp  # noqa: E402

import jax_kernels as kernels  # noqa: E402
from jax_kernels import add, added, axpy_kernel, layer_norm, layer_norm_of_jax, softmax  # noqa: E402
from repetitions import one_in  # noqa: E402

RNG = np.random.default_rng(7)
CLOSE = {"rtol": 2e-5, "atol": 2e-5}


def normal(*shape, dtype="float32"):
    return jnp.asarray(RNG.standard_normal(shape), dtype)


def examples(shape=(6, 100)):
    """By name: the function over kernels, jax's own, and arguments."""
    wide = (shape[-1],)
    return {
        "add": (added, jnp.add, (normal(*shape), normal(*shape))),
        "softmax": (softmax, jax.nn.softmax, (normal(*shape),)),
        "layer_norm": (layer_norm, layer_norm_of_jax, (normal(*shape), normal(*wide), normal(*wide))),
    }


NAMES = ("add", "softmax", "layer_norm")


def test_handlers_are_registered_under_xlas_names_of_platforms():
    # jax keeps a handler for an unknown platform and never calls it: GPUs are "CUDA" to jax, and "cuda" is unknown.
    asked = """
        import jax, silo.integrations.jax.jax_programs as programs
        from jaxlib.xla_client import xla_platform_names
        found = []
        jax.ffi.register_ffi_target = lambda name, handlers, platform: found.append(platform)
        programs.connect()
        print([xla_platform_names.get(one, one) for one in found], sorted(xla_platform_names.values()))
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(asked)], capture_output=True, text=True, check=True)
    assert done.stdout.split("\n")[0] == "['Host', 'CUDA'] ['CUDA', 'Host']"


@pytest.mark.parametrize("name", NAMES)
def test_as_it_is_and_inside_jit(name):
    ours, wanted, args = examples()[name]
    np.testing.assert_allclose(ours(*args), wanted(*args), **CLOSE)
    mixed = jax.jit(lambda *a: ours(*(2 * one for one in a)) * 3 + 1)
    np.testing.assert_allclose(mixed(*args), wanted(*(2 * one for one in args)) * 3 + 1, **CLOSE)


@pytest.mark.parametrize("columns", [100, 7], ids=["aligned", "unaligned examples"])
@pytest.mark.parametrize("name", NAMES)
def test_inside_vmap(name, columns):
    ours, wanted, args = examples((6, columns))[name]
    batch = tuple(jnp.stack([one, one + 1, one * 2]) for one in args)
    np.testing.assert_allclose(jax.vmap(ours)(*batch), jax.vmap(wanted)(*batch), **CLOSE)
    np.testing.assert_allclose(jax.jit(jax.vmap(ours))(*batch), jax.vmap(wanted)(*batch), **CLOSE)
    if len(args) > 1:  # one array for the whole batch
        axes = (0, *(None for _ in args[1:]))
        given = (batch[0], *args[1:])
        np.testing.assert_allclose(jax.vmap(ours, axes)(*given), jax.vmap(wanted, axes)(*given), **CLOSE)
    deep = tuple(jnp.stack([one, one - 1], axis=-1) for one in batch)  # another axis, and two of them
    both = jax.vmap(jax.vmap(ours), in_axes=-1, out_axes=1)
    np.testing.assert_allclose(both(*deep), jax.vmap(jax.vmap(wanted), in_axes=-1, out_axes=1)(*deep), **CLOSE)


@pytest.mark.parametrize("method", ["expand_dims", "broadcast_all", "sequential", "sequential_unrolled"])
def test_every_method_of_vmap(method):
    x, y = normal(5, 33), normal(33)
    made = jax.vmap(lambda one: add(one, y, vmap_method=method))(x)
    np.testing.assert_array_equal(made, x + y)
    text = jax.jit(jax.vmap(lambda one: add(one, y, vmap_method=method))).lower(x).as_text()
    assert "@silo_launch(" in text
    assert ("stablehlo.while" in text) is (method == "sequential")
    if method in ("expand_dims", "broadcast_all"):
        assert ("tensor<1x33xf32>) -> tensor<5x33xf32>" in text) is (method == "expand_dims")


def test_many_axes_of_vmap():
    x = normal(*(2 for _ in range(10)), 3)
    function = lambda one: add(one, one)  # noqa: E731
    for _ in range(10):
        function = jax.vmap(function)
    np.testing.assert_array_equal(function(x), 2 * x)


@pytest.mark.parametrize("name", NAMES)
def test_inside_grad(name):
    ours, wanted, args = examples()[name]
    weights = normal(6, 100)
    places = tuple(range(len(args)))
    made = jax.jit(jax.grad(lambda *a: (ours(*a) * weights).sum(), places))(*args)
    for one, other in zip(made, jax.grad(lambda *a: (wanted(*a) * weights).sum(), places)(*args), strict=True):
        np.testing.assert_allclose(one, other, rtol=2e-4, atol=2e-4)


def test_gradients_of_each_example():
    x = normal(3, 4, 16)
    made = jax.vmap(jax.grad(lambda one: (softmax(one) ** 2).sum()))(x)
    np.testing.assert_allclose(made, jax.vmap(jax.grad(lambda one: (jax.nn.softmax(one) ** 2).sum()))(x), **CLOSE)


def test_a_call_without_a_rule_says_so():
    x = normal(16)
    with pytest.raises(UnsupportedError, match=r"add_kernel .* has no gradient: .*jax\.custom_vjp"):
        jax.grad(lambda one: add(one, one).sum())(x)


@pytest.mark.parametrize("name", one_in(3, NAMES))
def test_exported_programs_run_in_another_process(name, tmp_path):
    ours, _, args = examples()[name]
    program = jax.jit(lambda *a: ours(*a) + 1)
    allowed = [jax.export.DisabledSafetyCheck.custom_call("silo_launch")]
    kept = jax.export.export(program, disabled_checks=allowed)(*args).serialize()
    (tmp_path / "program").write_bytes(kept)
    np.savez(tmp_path / "arrays.npz", *args, wanted=program(*args))
    code = """
        import sys
        import jax
        import numpy as np
        from silo.integrations import jax as seam

        seam.connect()
        exported = jax.export.deserialize(open(sys.argv[1] + "/program", "rb").read())
        arrays = dict(np.load(sys.argv[1] + "/arrays.npz"))
        wanted = arrays.pop("wanted")
        np.testing.assert_array_equal(exported.call(*arrays.values()), wanted)
        assert "triton" not in sys.modules
    """
    done = run_python(code, str(tmp_path))
    assert done.returncode == 0, done.stderr
    other = run_python(code, str(tmp_path), SILO_HOME=str(tmp_path / "empty"))
    assert other.returncode != 0
    assert "has none of that digest: run the program that exported it once" in other.stderr


def run_python(code, *arguments, **variables):
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), *arguments],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **variables},
        capture_output=True,
        text=True,
        check=False,
        timeout=250,
    )


def test_native_code_that_nobody_vouches_for_does_not_run(tmp_path):
    """A store that another user filled: code that its ledger does not contain is not loaded."""
    made = """
        import jax, numpy as np, sys
        import jax_kernels
        x = np.ones(48, "float32")
        allowed = [jax.export.DisabledSafetyCheck.custom_call("silo_launch")]
        kept = jax.export.export(jax.jit(jax_kernels.add), disabled_checks=allowed)(x, x).serialize()
        open(sys.argv[1] + "/program", "wb").write(kept)
    """
    run = """
        import jax, numpy as np, sys
        from silo.integrations import jax as seam
        seam.connect()
        x = np.ones(48, "float32")
        print(jax.export.deserialize(open(sys.argv[1] + "/program", "rb").read()).call(x, x)[0])
    """
    home = tmp_path / "home"
    assert run_python(made, str(tmp_path), SILO_HOME=str(home)).returncode == 0
    done = run_python(run, str(tmp_path), SILO_HOME=str(home))
    assert done.stdout.strip() == "2.0", done.stderr
    (ledger,) = home.rglob("built.jsonl")
    ledger.unlink()
    done = run_python(run, str(tmp_path), SILO_HOME=str(home))
    assert done.returncode != 0
    assert "TrustError" in done.stderr
    assert "nobody here built it, and nobody vouched for it" in done.stderr


def test_a_record_that_was_changed_is_not_followed(tmp_path):
    made = """
        import jax, numpy as np, sys
        import jax_kernels
        x = np.ones(48, "float32")
        allowed = [jax.export.DisabledSafetyCheck.custom_call("silo_launch")]
        kept = jax.export.export(jax.jit(jax_kernels.add), disabled_checks=allowed)(x, x).serialize()
        open(sys.argv[1] + "/program", "wb").write(kept)
    """
    assert run_python(made, str(tmp_path), SILO_HOME=str(tmp_path / "home")).returncode == 0
    run = """
        import jax, numpy as np, sys
        from silo.machine.process_session import session
        from silo.integrations import jax as seam
        from silo.integrations.jax.jax_programs import CallRecord
        seam.connect()
        store = session().store
        (key,) = [key for key in store.records.keys() if key.startswith("jax-")]
        (data,) = store.records.read(key)
        data["calls"]["grid"] = [1000, 1, 1]
        changed = CallRecord.from_json(data)
        assert changed.digest != key.removeprefix("jax-")
        store.records.append("jax-" + changed.digest, changed.to_json())
        program = open(sys.argv[1] + "/program", "rb").read()
        old, new = key.removeprefix("jax-").encode(), changed.digest.encode()
        assert old in program
        x = np.ones(48, "float32")
        print(jax.export.deserialize(program.replace(old, new)).call(x, x))
    """
    done = run_python(run, str(tmp_path), SILO_HOME=str(tmp_path / "home"))
    assert done.returncode != 0
    assert "TrustError" in done.stderr


# -- the parts of a call -----------------------------------------------------------------------------------------------


def test_arguments_that_are_updated():
    x, y = normal(70), normal(70)
    before = np.asarray(y)

    def updated(x, y):
        return silo.jax_call(axpy_kernel, x, y, y.size, 0.5, aliases=("y",))

    for function in (updated, jax.jit(updated)):
        np.testing.assert_allclose(function(x, y), before + 0.5 * np.asarray(x), **CLOSE)
        np.testing.assert_array_equal(y, before)  # the caller's array is as it was
    both = jax.jit(lambda x, y: (updated(x, y), y))(x, y)  # needed afterwards too
    np.testing.assert_array_equal(both[1], before)
    np.testing.assert_allclose(both[0], before + 0.5 * np.asarray(x), **CLOSE)
    same = jax.jit(lambda y: updated(y, y))(y)  # the updated array is also read
    np.testing.assert_allclose(same, 1.5 * before, **CLOSE)
    np.testing.assert_allclose(jax.vmap(updated, (0, None))(jnp.stack([x, 2 * x]), y)[1], before + x, **CLOSE)


def test_donated_arrays():
    x, y = normal(4096), normal(4096)
    wanted = np.asarray(y) + 0.5 * np.asarray(x)
    step = jax.jit(lambda x, y: silo.jax_call(axpy_kernel, x, y, y.size, 0.5, aliases=("y",)), donate_argnums=1)
    text = step.lower(x, y).compile().as_text()
    assert "output_to_operand_aliasing" in text
    made = step(x, y)
    np.testing.assert_allclose(made, wanted, **CLOSE)
    assert y.is_deleted()
    loop = jax.jit(lambda x, y: jax.lax.fori_loop(0, 10, lambda _, z: step(x, z), y))
    np.testing.assert_allclose(loop(x, jnp.zeros_like(x)), 5 * np.asarray(x), **CLOSE)


def test_several_outputs_come_in_the_kernels_order():
    x, y = normal(90), normal(90)
    low, high = silo.jax_call(
        kernels.sum_and_difference_kernel, x, y, 90, out={"high": "x", "low": jax.ShapeDtypeStruct((90,), "float32")}
    )
    np.testing.assert_array_equal(low, x - y)
    np.testing.assert_array_equal(high, x + y)


def test_every_kind_of_scalar():
    made = silo.jax_call(
        kernels.all_scalars_kernel,
        True,
        -3,
        5 << 32,
        0.25,
        None,
        "ten",
        BLOCK=16,
        out={"out": jax.ShapeDtypeStruct((16,), "float32")},
    )
    np.testing.assert_array_equal(made[:3], [1107.0, 1110.25, 1115.0])
    made = silo.jax_call(
        kernels.all_scalars_kernel,
        np.bool_(0),
        np.int64(1),
        wide=1 << 40,
        real=np.float32(2),
        nothing=None,
        WORD="nine",
        BLOCK=16,
        out={"out": lambda a: jax.ShapeDtypeStruct((16,), "float32")},
    )
    np.testing.assert_array_equal(made[:3], [1001.0, 1002.0, 1256.0])


def test_equal_numbers_of_other_types_are_other_calls():
    @silo.kernel(grid=(1,), tune="off")
    @triton.jit
    def halved(out, v, BLOCK: tl.constexpr):
        tl.store(out + tl.arange(0, BLOCK), (tl.zeros((BLOCK,), tl.float32) + 1) * v / 2)

    like = jax.ShapeDtypeStruct((16,), "float32")
    for value in (1, 1.0, True, -0.0, 0.0, float("nan"), 0):
        made = silo.jax_call(halved, value, BLOCK=16, out={"out": like})
        np.testing.assert_array_equal(made, np.full(16, np.float32(value) / 2))
        assert np.signbit(made[0]) == np.signbit(np.float32(value))


@pytest.mark.parametrize("name", ["float32", "bfloat16", "float16", "int32", "int8", "uint8", "int16", "uint32"])
def test_dtypes(name):
    x = jnp.arange(100).astype(name)
    made = jax.jit(add)(x, x)
    assert made.dtype == x.dtype
    np.testing.assert_array_equal(made, x + x)


def test_wide_dtypes_with_x64():
    code = """
        import jax
        jax.config.update("jax_enable_x64", True)
        import jax.numpy as jnp, numpy as np
        from jax_kernels import add
        for name in ("float64", "int64", "uint64"):
            x = jnp.arange(70).astype(name) + (1 << 40)
            assert x.dtype == name
            np.testing.assert_array_equal(add(x, x), x + x)
    """
    done = run_python(code)
    assert done.returncode == 0, done.stderr


def test_wide_dtypes_without_x64():
    x = np.arange(70, dtype="float64")  # jax makes float32 of it
    assert add(x, x).dtype == "float32"
    np.testing.assert_array_equal(add(x, x), (2 * x).astype("float32"))
    with pytest.raises(ArgumentError, match=r"elements of float64, and jax makes float32 of it here: say float32"):
        silo.jax_call(kernels.add_kernel, x, x, 70, out={"out": jax.ShapeDtypeStruct((70,), np.float64)})


def test_arrays_without_elements_and_without_axes():
    empty = jnp.zeros((0,), "float32")
    assert add(empty, empty).shape == (0,)
    assert jax.jit(add)(empty, empty).shape == (0,)
    assert jax.vmap(add)(jnp.zeros((3, 0)), jnp.zeros((3, 0))).shape == (3, 0)
    assert jax.vmap(add)(jnp.zeros((0, 3)), jnp.zeros((0, 3))).shape == (0, 3)
    assert float(add(jnp.float32(2), jnp.float32(3))) == 5.0

    @silo.kernel(grid=(1,), tune="off")
    @triton.jit
    def scaled(x, factor, out, BLOCK: tl.constexpr):
        i = tl.arange(0, BLOCK)
        tl.store(out + i, tl.load(x + i) * tl.load(factor))

    x = normal(16)
    made = jax.jit(lambda x, f: silo.jax_call(scaled, x, f, BLOCK=16, out={"out": "x"}))(x, 3.0)
    np.testing.assert_array_equal(made, 3 * x)


def test_layouts_that_xla_chose_otherwise():
    x = jnp.arange(1200.0).reshape(30, 40)
    function = jax.jit(lambda x: add(x.T, x.T + 1))
    np.testing.assert_array_equal(function(x), 2 * x.T + 1)
    np.testing.assert_array_equal(jax.jit(lambda x: add(x[::2, 1::3], x[::2, 1::3]))(x), 2 * x[::2, 1::3])


def test_grids():
    x = normal(512)
    for grid in ((2,), [2, 1], (2, 1, 1), 2, np.int64(2), lambda meta: (triton.cdiv(meta["n"], meta["BLOCK"]),)):
        made = silo.jax_call(kernels.add_kernel, x, x, 512, out={"out": "x"}, grid=grid)
        np.testing.assert_array_equal(made, 2 * x)
    made = silo.jax_call(kernels.add_kernel, x, x, 512, BLOCK=512, num_warps=8, out={"out": "x"}, grid=1)
    np.testing.assert_array_equal(made, 2 * x)


def test_grids_by_shape():
    @silo.kernel(grid=lambda a: (a.x.shape[0],), tune="off")
    @triton.jit
    def first_of_row(x, out, n):
        row = tl.program_id(0)
        tl.store(out + row, tl.load(x + row * n))

    x = normal(9, 5)
    like = {"out": lambda a: jax.ShapeDtypeStruct(a.x.shape[:1], a.x.dtype)}
    np.testing.assert_array_equal(silo.jax_call(first_of_row, x, 5, out=like), x[:, 0])
    np.testing.assert_array_equal(
        jax.vmap(lambda one: silo.jax_call(first_of_row, one, 5, out=like))(x[None]), x[:, :1].T
    )


# -- processes ---------------------------------------------------------------------------------------------------------


def test_threads():
    function = jax.jit(lambda x: softmax(x) + add(x, x))
    inputs = [normal(16, 64) for _ in range(8)]
    wanted = [np.asarray(jax.nn.softmax(x) + 2 * x) for x in inputs]
    failed = []

    def work(number):
        for _ in range(30):
            made = np.asarray(function(inputs[number]))
            if not np.allclose(made, wanted[number], **CLOSE):
                failed.append(number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert not failed


def test_threads_that_meet_a_kernel_first_at_once():
    code = """
        import threading, numpy as np, jax
        import jax_kernels
        failed = []
        def work(size):
            x = np.arange(size, dtype="float32")
            try:
                np.testing.assert_array_equal(jax_kernels.add(x, x), 2 * x)
            except BaseException as error:
                failed.append(error)
        threads = [threading.Thread(target=work, args=(100 + number % 3,)) for number in range(12)]
        [one.start() for one in threads]
        [one.join() for one in threads]
        assert not failed, failed
    """
    done = run_python(code)
    assert done.returncode == 0, done.stderr


def test_programs_outlive_their_kernels():
    def made():
        @silo.kernel(space={"BLOCK": [128]}, grid=lambda a: (silo.cdiv(a.n, a.BLOCK),), tune="off")
        @triton.jit
        def doubled(x, out, n, BLOCK: tl.constexpr):
            i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
            tl.store(out + i, 2 * tl.load(x + i, mask=i < n), mask=i < n)

        return (
            jax.jit(lambda x: silo.jax_call(doubled, x, x.size, out={"out": "x"}))
            .lower(jax.ShapeDtypeStruct((100,), "float32"))
            .compile()
        )

    program = made()
    gc.collect()
    x = normal(100)
    np.testing.assert_array_equal(program(x), 2 * x)


def test_a_child_made_by_fork():
    """XLA itself runs no threads in a child; Silo's own calls there neither hang nor crash."""
    code = """
        import os, warnings, numpy as np
        import jax_kernels, silo
        warnings.simplefilter("ignore")
        x = np.arange(100, dtype="float32")
        jax_kernels.add(x, x).block_until_ready()
        out = np.empty_like(x)
        child = os.fork()
        if child == 0:
            jax_kernels.add_kernel(x, x, out, 100)
            os._exit(0 if (out == 2 * x).all() else 1)
        assert os.waitpid(child, 0)[1] == 0
        np.testing.assert_array_equal(jax_kernels.add(x, x), 2 * x)
    """
    done = run_python(code)
    assert done.returncode == 0, done.stderr


def test_several_devices():
    code = """
        import jax, jax.numpy as jnp, numpy as np
        from functools import partial
        from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
        from jax_kernels import add, softmax, axpy_kernel
        import silo
        assert len(jax.devices()) == 4
        x = jnp.arange(64 * 32, dtype="float32").reshape(64, 32) / 100
        mesh = Mesh(np.array(jax.devices()), ("rows",))
        for check in (True, False):
            mapped = jax.shard_map(lambda a: softmax(a) + add(a, a), mesh=mesh, in_specs=P("rows"),
                                   out_specs=P("rows"), check_vma=check)
            np.testing.assert_allclose(jax.jit(mapped)(x), jax.nn.softmax(x) + 2 * x, rtol=2e-5)
        spread = jax.device_put(x, NamedSharding(mesh, P("rows")))
        np.testing.assert_allclose(jax.jit(softmax)(spread), jax.nn.softmax(x), rtol=2e-5)
        each = jax.pmap(lambda a: add(a, a))(x.reshape(4, 16, 32))
        np.testing.assert_array_equal(each.reshape(64, 32), 2 * x)
        last = jax.device_put(x, jax.devices()[3])
        np.testing.assert_array_equal(add(last, last), 2 * x)
    """
    done = run_python(code, XLA_FLAGS="--xla_force_host_platform_device_count=4")
    assert done.returncode == 0, done.stderr


def test_inside_control_flow_and_other_transforms():
    x = normal(4, 20)
    looped = jax.jit(lambda x: jax.lax.fori_loop(0, 5, lambda _, z: add(z, x), jnp.zeros_like(x)))
    np.testing.assert_allclose(looped(x), 5 * x, **CLOSE)
    scanned = jax.lax.scan(lambda carry, row: (add(carry, row), softmax(row[None])[0]), jnp.zeros(20), x)
    np.testing.assert_allclose(scanned[0], x.sum(0), **CLOSE)
    np.testing.assert_allclose(scanned[1], jax.nn.softmax(x), **CLOSE)
    branch = jax.jit(lambda x, flag: jax.lax.cond(flag, lambda z: add(z, z), lambda z: z, x))
    np.testing.assert_array_equal(branch(x, True), 2 * x)
    np.testing.assert_array_equal(branch(x, False), x)
    kept = jax.grad(lambda x: jax.checkpoint(softmax)(x).max())(x)
    np.testing.assert_allclose(kept, jax.grad(lambda x: jax.nn.softmax(x).max())(x), **CLOSE)
    assert jax.eval_shape(softmax, x).shape == (4, 20)


def test_without_jit():
    x = normal(20)
    with jax.disable_jit():
        np.testing.assert_array_equal(add(x, x), 2 * x)
        np.testing.assert_array_equal(jax.jit(add)(x, x), 2 * x)
        np.testing.assert_array_equal(jax.vmap(add)(x[None], x[None]), 2 * x[None])


def test_heuristics_of_the_authors():
    @silo.kernel(grid=(1,), tune="off")
    @triton.heuristics({"BLOCK": lambda a: int(str(a["n"]))})  # no expression: it runs in Python
    @triton.jit
    def doubled(x, out, n, BLOCK: tl.constexpr):
        i = tl.arange(0, BLOCK)
        tl.store(out + i, 2 * tl.load(x + i))

    x = normal(64)
    np.testing.assert_array_equal(silo.jax_call(doubled, x, 64, out={"out": "x"}), 2 * x)
    np.testing.assert_array_equal(silo.jax_call(doubled, x[:32], 32, out={"out": "x"}), 2 * x[:32])


def test_one_program_for_calls_alike(caplog):
    x = normal(50)
    function = jax.jit(lambda x: add(x, x))
    with caplog.at_level("DEBUG", logger="jax"):
        function(x)
        function(x + 1)
    assert function._cache_size() == 1
