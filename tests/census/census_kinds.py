"""The kinds of kernels that the census runs: each is a function that runs one kind and compares it with an oracle."""
# pyright: reportAttributeAccessIssue=false

import contextlib
import importlib
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
import triton

KINDS = {}
CONFIGS = 1
"""How many configs of a library's tuner are left to it; set before :func:`load_kinds`."""
MOVED = [0]
"""By how many elements the arrays of a kind are moved away from where torch would put them."""
LONGER = [0]
"""By how many steps the sequences of a kind are longer than without it; for kinds that have sequences."""

MODULES = (
    "census_tutorials",
    "census_attention",
    "census_features",
    "census_indexing",
    "census_liger_norms",
    "census_liger_activations",
    "census_liger_losses",
    "census_liger_fused_losses",
    "census_liger_positions",
    "census_liger_mixtures",
    "census_liger_bfloat16",
    "census_conch",
    "census_fla",
    "census_fla_references",
)
LIBRARIES = {  # by the source that names it, the package to import
    "liger": "liger_kernel",
    "conch": "conch",
    "fla": "fla",
}


@dataclass(frozen=True)
class Kind:
    """One kind: where it comes from (``tutorial``, ``feature``, a library), what it is called, what runs it."""

    source: str
    name: str
    run: Callable = field(repr=False)

    @property
    def label(self):
        return f"{self.source}: {self.name}"


def kind(source, name):
    """Enter a function that raises where the kind does not run or is not right."""

    def enter(run):
        made = Kind(source, name, run)
        assert made.label not in KINDS, made.label
        KINDS[made.label] = made
        return run

    return enter


def load_kinds(*, on_cuda=False):
    """All kinds in order, and why those of some libraries are left out, by the source that names the library.

    ``on_cuda``: the libraries may take the device that torch finds, because it is the CPU (``silo exec --on cpu``).
    """
    absent = {}
    if torch.cuda.is_available() and not on_cuda:
        absent = {
            source: f"{package} takes the GPU that torch finds for its device" for source, package in LIBRARIES.items()
        }
    for name in MODULES:
        source = name.split("_")[1]
        if source in absent:
            continue
        try:
            importlib.import_module(name)
        except ModuleNotFoundError as error:
            if (error.name or "").partition(".")[0] != LIBRARIES.get(source):
                raise
            absent[source] = f"{error.name} is not installed"
    return KINDS, absent


@contextlib.contextmanager
def launched_kernels():
    """Collects the names of the kernels that are launched meanwhile, each with the object that was loaded for it."""
    seen = set()

    def enter(metadata):
        launched = metadata.get()
        seen.add((launched["name"], launched["function"]))

    triton.knobs.runtime.launch_enter_hook.add(enter)
    try:
        yield seen
    finally:
        triton.knobs.runtime.launch_enter_hook.remove(enter)


_NAMED = re.compile(r'^\s*(?:%[\w$.:, #%]+ = )?"?([a-z]+\.[\w.]+)', re.MULTILINE)


def named_operations(folder):
    """The operations that the modules in a folder of Triton's cache name."""
    return {name for file in folder.rglob("*.ttir") for name in _NAMED.findall(file.read_text())}


# -- comparing with an oracle ----------------------------------------------------------------------------------------


def measure(call, quantiles):
    """For tuners: one launch for the code, one by the clock."""
    call()
    begin = time.perf_counter()
    call()
    return [(time.perf_counter() - begin) * 1e3] * len(quantiles)


def normal(*shape, dtype=torch.float32, seed=0):
    return moved(torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype))


def moved(tensor):
    """The same numbers, so many elements on in memory of their own."""
    if not MOVED[0]:
        return tensor
    memory = torch.empty(tensor.numel() + MOVED[0], dtype=tensor.dtype)
    return memory[MOVED[0] :].view(tensor.shape).copy_(tensor)


def close(ours, expected, *, rtol=1e-4, atol=1e-5, what="the result"):
    """Compare with an oracle that was computed in double precision."""
    assert ours.shape == expected.shape, f"{what} has the shape {tuple(ours.shape)}, not {tuple(expected.shape)}"
    torch.testing.assert_close(
        ours.detach().double(),
        expected.detach().double(),
        rtol=rtol,
        atol=atol,
        equal_nan=True,
        msg=lambda m: f"{what}: {m}",
    )


def agree(ours, oracle, *inputs, rtol=1e-4, atol=1e-5, backward=True):
    """Run both on copies of the inputs, forward and backward, and compare outputs and gradients.

    The oracle gets doubles. Outputs are weighted with fixed random numbers before they are added up to a loss.
    """
    mine = [_copy(value, None) for value in inputs]
    theirs = [_copy(value, torch.float64) for value in inputs]
    got, expected = _outputs(ours(*mine)), _outputs(oracle(*theirs))
    assert len(got) == len(expected)
    for index, (one, other) in enumerate(zip(got, expected, strict=True)):
        close(one, other, rtol=rtol, atol=atol, what=f"output {index}")
    if not backward:
        return
    _loss(got).backward()
    _loss(expected).backward()
    for index, (one, other) in enumerate(zip(mine, theirs, strict=True)):
        if isinstance(other, torch.Tensor) and other.grad is not None:
            assert one.grad is not None, f"input {index} got no gradient"
            close(one.grad, other.grad, rtol=rtol, atol=atol, what=f"the gradient of input {index}")


def _copy(value, dtype):
    if not isinstance(value, torch.Tensor):
        return value
    if not value.is_floating_point():
        return value.clone()
    copied = moved(value.detach().clone()) if dtype is None else value.detach().to(dtype)
    return copied.requires_grad_(not getattr(value, "is_constant", False))


def constant(value):
    """A tensor of which no gradient is asked."""
    value.is_constant = True
    return value


def _outputs(result):
    return [one for one in (result if isinstance(result, tuple) else (result,)) if one is not None]


def _loss(outputs):
    total = 0
    for index, one in enumerate(outputs):
        if one.requires_grad:
            weights = normal(*one.shape, seed=100 + index) if one.ndim else torch.tensor(0.7)
            total = total + (one * weights.to(one.dtype)).sum()
    return total
