"""A bundle with one kernel, ``affine``: ``out = x * factor + bias``, optionally with relu; compiled from C.

Its parameters are those that framework operators must be able to pass: an array that may be None, a text constant,
numbers, and defaults.
"""

from __future__ import annotations

import hashlib
import platform
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

from silo.artifacts.artifact import Artifact, BlobRef
from silo.bundle.contents import Basis, BundleContents, BundleKernel, BundleVariant
from silo.bundle.writer import write_bundle
from silo.core import expressions
from silo.core.config import Config
from silo.core.device import Target
from silo.core.expressions import Argument, Const, OpKind
from silo.core.launch_info import AbiType, LaunchInfo, LayoutSlot
from silo.core.signature import Effect, Parameter, ParameterKind, Signature
from silo.core.specialization import Fact, Specialization
from silo.core.values import dtype
from silo.core.variant import Variant

_SOURCE = """
#include <stdint.h>
#define AFFINE(name, has_bias, relu) \\
    int32_t name(void *const *params, const uint32_t grid[3], uint64_t begin, uint64_t end, void *scratch, \\
                 void *context) { \\
        (void)grid, (void)scratch, (void)context; \\
        const float *x = *(const float **)params[0]; \\
        float *out = *(float **)params[1]; \\
        const int32_t n = *(int32_t *)params[2]; \\
        const float *bias = has_bias ? *(const float **)params[3] : 0; \\
        const float factor = *(float *)params[3 + has_bias]; \\
        for (int64_t i = (int64_t)begin * 64; i < (int64_t)end * 64 && i < n; i++) { \\
            const float value = x[i] * factor + (has_bias ? bias[i] : 0); \\
            out[i] = relu && value < 0 ? 0 : value; \\
        } \\
        return 0; \\
    }
AFFINE(plain, 0, 0) AFFINE(plain_relu, 0, 1) AFFINE(biased, 1, 0) AFFINE(biased_relu, 1, 1)
"""
_POINTER, _CONSTANT = ParameterKind.POINTER, ParameterKind.CONSTEXPR
_TARGETS = {"x86_64": "cpu:x86-64-v2", "aarch64": "cpu:aarch64-armv8.2"}


def write_affine(path: Path) -> Path:
    """Write the bundle for this machine's CPU; skip the test without a C compiler."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip("needs a C compiler")
    with tempfile.TemporaryDirectory() as folder:
        built = Path(folder, "affine.so")
        words = [compiler, "-shared", "-fPIC", "-O1", "-ffp-contract=off", "-x", "c", "-", "-o", str(built)]
        subprocess.run(words, input=_SOURCE.encode(), check=True)
        code = built.read_bytes()
    sha256 = hashlib.sha256(code).hexdigest()
    blob = BlobRef(sha256, "so", len(code))
    variants = tuple(_variant(blob, has_bias=has, relu=relu) for has in (False, True) for relu in (False, True))
    signature = Signature(
        (
            *(Parameter(name) for name in ("x", "out", "n")),
            Parameter("bias", default=None),
            Parameter("factor", default=1.0),
            Parameter("ACTIVATION", _CONSTANT, default=""),
        )
    )
    grid = (expressions.make(OpKind.CDIV, Argument("n"), Const(64)),)
    kernel = BundleKernel(name="affine", signature=signature, grid=grid, variants=variants)
    write_bundle(path, BundleContents((kernel,)), {sha256: code}.get)
    return path


def _variant(blob: BlobRef, *, has_bias: bool, relu: bool) -> BundleVariant:
    entry = ("biased" if has_bias else "plain") + ("_relu" if relu else "")
    signature = Signature(
        (
            Parameter("x", _POINTER, dtype("float32"), Effect.READ),
            Parameter("out", _POINTER, dtype("float32"), Effect.WRITE),
            Parameter("n", ParameterKind.INTEGER, dtype("int32")),
            Parameter("bias", _POINTER, dtype("float32") if has_bias else None, Effect.READ),
            Parameter("factor", ParameterKind.FLOAT, dtype("float32")),
            Parameter("ACTIVATION", _CONSTANT),
        )
    )
    layout = [("x", "ptr"), ("out", "ptr"), ("n", "i32"), ("bias", "ptr"), ("factor", "fp32")]
    slots = tuple(LayoutSlot(name, AbiType(abi)) for name, abi in layout if has_bias or name != "bias")
    facts = Specialization(
        facts=() if has_bias else (("bias", Fact.NONE),),
        constants=(("ACTIVATION", "relu" if relu else ""),),
    )
    made = Variant(
        kernel="affine",
        source=hashlib.sha256(b"affine").hexdigest(),
        signature=signature,
        specialization=facts,
        config=Config.of(),
        target=Target.parse(_TARGETS.get(platform.machine(), "cpu:x86-64-v2")),
    )
    digest = hashlib.sha256(entry.encode()).hexdigest()
    artifact = Artifact(made, LaunchInfo(entry, slots), blob, (), "made up 1.0", digest)
    return BundleVariant(artifact, "made up", Basis.HEURISTIC)
