"""The same computations as the example kernels, by torch (or by numpy without torch), to compare times with.

Each function takes a case's arguments by parameter name, as torch tensors or numpy arrays, and returns a function that
computes the same thing once. Outputs are preallocated if the library allows it, as the kernels' outputs are.
"""

from collections.abc import Callable, Mapping
from typing import Any

Arguments = Mapping[str, Any]
Run = Callable[[], object]


def torch_references() -> dict[str, Callable[[Arguments], Run]]:
    """Return torch's functions by kernel name. Raises ImportError if torch is missing."""
    import torch
    from torch.nn import functional

    def add(a: Arguments) -> Run:
        return lambda: torch.add(a["x"], a["y"], out=a["out"])

    def softmax(a: Arguments) -> Run:
        return lambda: torch.softmax(a["x"], dim=-1, out=a["out"])

    def layer_norm(a: Arguments) -> Run:
        columns = (a["columns"],)
        rows = (a["rows"], 1)
        mean, rstd = a["mean"].view(rows), a["rstd"].view(rows)
        compute = torch.ops.aten.native_layer_norm.out
        return lambda: compute(a["x"], columns, a["weight"], a["bias"], a["eps"], out0=a["out"], out1=mean, out2=rstd)

    def matmul(a: Arguments) -> Run:
        def run() -> None:
            torch.matmul(a["a"], a["b"], out=a["c"])
            if a["ACTIVATION"]:
                functional.leaky_relu_(a["c"], 0.01)

        return run

    def attention(a: Arguments) -> Run:
        q, k, v = (a[name][None] for name in ("q", "k", "v"))
        return lambda: functional.scaled_dot_product_attention(q, k, v, is_causal=True, scale=a["scale"])

    def dropout(a: Arguments) -> Run:
        return lambda: functional.dropout(a["x"], a["p"])

    return {
        "add": add,
        "softmax": softmax,
        "layer_norm": layer_norm,
        "matmul": matmul,
        "attention": attention,
        "dropout": dropout,
    }


def numpy_references() -> dict[str, Callable[[Arguments], Run]]:
    """Return numpy's functions by kernel name."""
    import numpy as np

    def softmax(x: Any) -> Any:
        e = np.exp(x - x.max(axis=-1, keepdims=True))
        return e / e.sum(axis=-1, keepdims=True)

    def layer_norm(a: Arguments) -> Run:
        x = a["x"]

        def run() -> Any:
            centred = x - x.mean(axis=1, keepdims=True)
            return centred / np.sqrt(x.var(axis=1, keepdims=True) + a["eps"]) * a["weight"] + a["bias"]

        return run

    def attention(a: Arguments) -> Run:
        q, k, v = a["q"], a["k"], a["v"]
        mask = np.tril(np.ones((q.shape[1], q.shape[1]), dtype=bool))

        def run() -> Any:
            scores = np.where(mask, q @ k.transpose(0, 2, 1) * a["scale"], -np.inf)
            return softmax(scores) @ v

        return run

    def dropout(a: Arguments) -> Run:
        x, p = a["x"], a["p"]
        generator = np.random.default_rng(a["seed"])
        return lambda: np.where(generator.random(x.shape, dtype=np.float32) > p, x / (1 - p), 0)

    def matmul(a: Arguments) -> Run:
        def run() -> None:
            np.matmul(a["a"], a["b"], out=a["c"])
            if a["ACTIVATION"]:
                np.copyto(a["c"], 0.01 * a["c"], where=a["c"] < 0)

        return run

    return {
        "add": lambda a: lambda: np.add(a["x"], a["y"], out=a["out"]),
        "softmax": lambda a: lambda: softmax(a["x"]),
        "layer_norm": layer_norm,
        "matmul": matmul,
        "attention": attention,
        "dropout": dropout,
    }
