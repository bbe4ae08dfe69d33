"""Keys and emitted text that must not change, because later versions look up stored results under the same keys."""

import hashlib

from pinned import COMPILERS, MODEL, TARGET
from silo.core.config import Config
from silo.core.device import Target
from silo.core.grouped_space import GroupedSpace
from silo.core.signature import Signature
from silo.core.space import Space
from silo.core.specialization import Specialization
from silo.core.values import digest
from silo.core.variant import SCHEMAS, Variant, ceilings_key, effort_key, seeds_key, spills_key, studies_key
from silo.errors import SiloError
from silo.kinds.triton.front.triton_source import TritonSource
from silo.tuner.trial import Study
from triton_samples import SAMPLES

TARGETS = (TARGET, *map(Target.parse, ("cpu:x86-64-v4", "cuda:sm_90", "hip:gfx942")))


def sha256(text):
    return hashlib.sha256(text.encode()).hexdigest()


def variant_of(name, target):
    """Return the source of a sample, and its variant for a target."""
    function, arguments = SAMPLES[name]
    source = TritonSource.of(function)
    signature, specialization = source.specialize(arguments)
    return source, Variant(name, source.fingerprint, signature, specialization, Config.of(num_warps=4), target)


def keys_of_kernel(name):
    """Return a kernel's fingerprint, and for each target the keys of artifact and job, and hashes of emitted text."""
    found = {}
    for target in TARGETS:
        source, variant = variant_of(name, target)
        compiler = COMPILERS[target.kind]()
        identity = compiler.identity(target)
        found["fingerprint"] = source.fingerprint
        made = {"artifact": variant.artifact_key(identity)}
        try:
            job = compiler.lower(source, variant)
        except SiloError as error:
            made["refused"] = type(error).__name__
        else:
            job = getattr(job, "job", job)  # older versions return the job itself
            made |= {"job": job.key(identity), "ttir": sha256(job.text)}
        found[str(target)] = made
    return found


def keys_of_values():
    """Return one key under each schema, of made-up values."""
    choices = [Config.of(BLOCK=block, num_warps=warps) for block in (64, 128) for warps in (4, 8)]
    grid = Space(axes=(("BLOCK", (64, 128)), ("num_warps", (4, 8))))
    study = Study(
        "add",
        "0" * 64,
        Signature(()),
        Specialization(),
        TARGET,
        "a compiler",
        ("n",),
        (1 << 10,),
        MODEL,
        "wall/1",
        "cuda 1",
    )
    return {
        "study": study.key,
        "study as JSON": digest("study", study.to_json()),
        "studies": studies_key("add"),
        "spills": spills_key(study.key),
        "effort": effort_key(study.key),
        "seeds": seeds_key("add"),
        "ceilings": ceilings_key(MODEL),
        "grid": grid.key(),
        "list": Space(points=tuple(choices)).key(),
        "groups": digest("groups", GroupedSpace(choices[0], (tuple(choices[:2]), tuple(choices[2:]))).to_json()),
        "schemas": sorted(SCHEMAS),
    }
