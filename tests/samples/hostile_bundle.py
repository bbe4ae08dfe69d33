"""A bundle in which every text is an attack: on the terminal, on the markup of tables, or on file names."""

from __future__ import annotations

from pathlib import Path

from bundle_samples import Sample, put, sample
from fake_backend.measure import fake_study
from silo.bundle.contents import BundleKernel, BundleVariant, encode_documents
from silo.bundle.writer import write_bundle
from silo.core.config import Config
from silo.core.device import DeviceModel
from silo.core.dispatch import DispatchRules
from silo.core.recipes import ArrayRecipe, CaseRecipe, Fill, ScalarRecipe
from silo.core.signature import Signature
from silo.core.values import dtype
from silo.frozen import replace
from silo.tuner.trial import Status

# Markup, malformed markup, a terminal title, a carriage return, C1, DEL, direction marks, a link, an emoji's name,
# HTML.
TEXT = "[red]a[/nope]\x1b]0;t\x07\r\x9b31m\x7f\u202e\u2066[link=x:y]:smile:</title><script>"
# Characters that must not reach a terminal, and the emoji that a markup library would make of the emoji's name.
FORBIDDEN = ("\x1b", "\x07", "\r", "\x9b", "\x7f", "\u202e", "\u2066", "\U0001f604")


def hostile(word: str) -> str:
    """Return a hostile text that contains ``word``."""
    return f"../../../{word}{TEXT}\nFORGED a line"


def name(word: str) -> str:
    """Return a hostile name that contains ``word``: printable, because the reader refuses other names."""
    return f"../../../{word}[red]a[/nope][link=x:y]:smile:</title><script>"


def _parameter(word: str) -> str:
    """Return the name of a parameter; parameters that the key or the configs refer to must have printable names."""
    return name(word) if word in ("n", "BLOCK") else hostile(word)


def hostile_bundle(path: Path) -> Path:
    """Write the bundle."""
    made = sample(1, 2, targets=("cpu:x86-64-v3", "cuda:sm_90"))
    (kernel,) = made.contents.kernels
    contents = replace(
        made.contents,
        kernels=(_kernel(made, kernel),),
        producer=(("name", hostile("version")),),
        toolchain=(("tool", hostile("version")),),
        notes=(("note", hostile("text")),),
    )
    write_bundle(path, contents, made.read_blob)
    return path


def _config() -> Config:
    return Config.of({name("BLOCK"): hostile("value"), "num_warps": 4})


def _signature(signature: Signature) -> Signature:
    return Signature(tuple(replace(one, name=_parameter(one.name)) for one in signature.parameters))


def _variant(made: Sample, one: BundleVariant) -> BundleVariant:
    artifact = one.artifact
    sidecars = tuple(
        put(made.blobs, ref.kind, hostile("source").replace("\n", " ").encode()) for ref in artifact.sidecars
    )
    launch = replace(
        artifact.launch,
        layout=tuple(replace(slot, name=_parameter(slot.name)) for slot in artifact.launch.layout),
    )
    variant = replace(
        artifact.variant,
        kernel=name("kernel"),
        signature=_signature(artifact.variant.signature),
        specialization=replace(
            artifact.variant.specialization,
            facts=tuple((_parameter(word), fact) for word, fact in artifact.variant.specialization.facts),
        ),
        config=_config(),
    )
    artifact = replace(artifact, variant=variant, launch=launch, sidecars=sidecars, compiler=hostile("compiler"))
    return replace(one, artifact=artifact, reason=hostile("reason"))


def _kernel(made: Sample, kernel: BundleKernel) -> BundleKernel:
    study = replace(
        fake_study(hostile("kernel"), compiler=hostile("compiler"), policy=hostile("policy"), driver=hostile("driver")),
        bucket_names=(name("n"),),
        device=DeviceModel(hostile("vendor"), hostile("device"), hostile("arch"), 1, 1 << 30),
    )
    trials = (
        study.trial(_config(), Status.OK, [5] * 9, message=hostile("message")),
        study.failed(Config.of({name("BLOCK"): hostile("other"), "num_warps": 4}), Status.RUN, hostile("message")),
    )
    documents = [{"study": study.to_json(), "trial": trial.to_json()} for trial in trials]
    array = ArrayRecipe.of(Fill.EMPTY, (16,), dtype("float32"))
    case = CaseRecipe(
        hostile("case"),
        ((hostile("x"), array), (hostile("out"), array), (name("n"), ScalarRecipe(16))),
    )
    (rules,) = kernel.rules
    return replace(
        kernel,
        name=name("kernel"),
        signature=_signature(kernel.signature),
        key=(name("n"),),
        config_names=(name("BLOCK"), "num_warps"),
        derived=(),
        grid=None,
        variants=tuple(_variant(made, one) for one in kernel.variants),
        rules=(
            replace(
                rules,
                signature=_signature(rules.signature),
                rules=DispatchRules.of([name("n")], {(1024,): _config()}, _config()),
                space=7,
            ),
        ),
        trials=put(made.blobs, kernel.trials.kind, encode_documents(documents)),
        cases=put(made.blobs, kernel.cases.kind, encode_documents([case.to_json()])),
    )
