"""Variants, compile jobs and their results, and the keys of stored records.

Variants and jobs compute their own keys, as spaces and studies do.
"""

from __future__ import annotations

from silo.core.config import Config
from silo.core.device import TARGET, DeviceModel, Target
from silo.core.json_reader import ANYTHING, TEXT, Persisted, value_of
from silo.core.launch_info import LaunchInfo
from silo.core.signature import NoDefault, ParameterKind, Signature
from silo.core.specialization import Specialization
from silo.core.values import JSON, Value, digest, has_look_alike
from silo.frozen import field, frozen, remembered

__all__ = [
    "SCHEMAS",
    "CacheFiles",
    "CompileJob",
    "Compiled",
    "CompiledBlob",
    "Variant",
    "ceilings_key",
    "effort_key",
    "seeds_key",
    "spills_key",
    "studies_key",
]


@frozen
class Variant(Persisted):
    """A variant: source, signature, specialization, config and target.

    ``source`` is the source's fingerprint; ``signature`` is typed. Constexpr parameters get their value from the
    specialization if the caller gave it, else from the config.
    """

    title = "a variant"

    kernel: str = field(form=TEXT)
    source: str = field(form=TEXT)
    signature: Signature = field(form=value_of(Signature))
    specialization: Specialization = field(form=value_of(Specialization))
    config: Config = field(form=value_of(Config))
    target: Target = field(form=TARGET)

    @property
    def has_look_alike(self) -> bool:
        """Whether a constexpr of this variant has a look-alike: another value that Python calls equal (1 and True)."""
        return any(map(has_look_alike, self._constexprs.values()))

    @property
    def _constexprs(self) -> dict[str, Value]:
        """The values of constexpr parameters by name, including defaults."""
        kinds = {parameter.name: parameter.kind for parameter in self.signature.parameters}
        defaults = {
            parameter.name: parameter.default
            for parameter in self.signature.parameters
            if parameter.kind is ParameterKind.CONSTEXPR and not isinstance(parameter.default, NoDefault)
        }
        values = {**dict(self.config.values), **self.specialization.constant_values}
        # Descriptors are left out, because their constant is a block shape, not a constexpr.
        return {
            **defaults,
            **{name: value for name, value in values.items() if kinds.get(name) is not ParameterKind.DESCRIPTOR},
        }

    def artifact_key(self, compiler_identity: str) -> str:
        """Returns the key of this variant's artifact in a store.

        The key's schema is ``artifact-key/1``, or ``artifact-key/2`` for a variant that has a look-alike.

        Under schema ``/1`` V=1 and V=True have one key, so a store may hold the code of one under the key of the other.
        The outcomes of compile jobs need no second schema: a job's key is made from the text that is compiled.
        """
        key = self._artifact_keys.get(compiler_identity)
        if key is None:
            parts = [self.to_json(), compiler_identity]
            key = digest("artifact-key/2", parts) if self.has_look_alike else digest("artifact-key/1", parts)
            self._artifact_keys[compiler_identity] = key
        return key

    @remembered
    def _artifact_keys(self) -> dict[str, str]:
        """A cache of computed keys, by compiler identity; it stays small, as a process has few compilers."""
        return {}


@frozen
class CompileJob(Persisted):
    """The input of a compile worker: text and plain values, no Python objects.

    ``compiler`` names the plug-in, ``text`` is the front end's output (TTIR), ``parameters`` is the plug-in's other
    data. Two configs that lead to equal jobs (a CPU ignores num_warps) are compiled once.
    """

    title = "a compile job"

    compiler: str = field(form=TEXT)
    kernel: str = field(form=TEXT)
    target: Target = field(form=TARGET)
    text: str = field(form=TEXT)
    parameters: JSON = field(form=ANYTHING)

    def key(self, compiler_identity: str) -> str:
        """Returns the key under which the job's outcome is stored (schema ``job-key/1``)."""
        key = self._keys.get(compiler_identity)
        if key is None:
            key = self._keys[compiler_identity] = digest("job-key/1", [self.to_json(), compiler_identity])
        return key

    @remembered
    def _keys(self) -> dict[str, str]:
        """A cache of computed keys, by compiler identity; it stays small, as a process has few compilers."""
        return {}


@frozen
class CompiledBlob:
    """One file of bytes with its kind, which the compiler declares."""

    kind: str
    data: bytes


@frozen
class Compiled:
    """The outcome of one compile job: launch info, the blob a driver loads, sidecars (C source, TTIR), notes."""

    launch: LaunchInfo
    blob: CompiledBlob
    sidecars: tuple[CompiledBlob, ...] = ()
    log: str = ""


@frozen
class CacheFiles:
    """The files that a framework's own compile would write to its cache, in the order in which it would write them.

    ``files`` holds each file's name ending and its content. If ``files`` is empty, ``reason`` is why the framework has
    to compile the job itself, or "" if the cache already holds the files.
    """

    files: tuple[tuple[str, bytes], ...]
    reason: str = ""


# The schemas of all keys. If the inputs of a key change, the number in its schema changes too, so that entries stored
# under old keys are never misread.
SCHEMAS = (
    *("artifact-key/1", "artifact-key/2", "ceilings-key/1", "effort-key/1", "job-key/1", "seeds-key/1"),
    *("space-key/1", "spills-key/1", "studies-key/1", "trial-key/1", "installation-key/1"),
)


def studies_key(kernel: str) -> str:
    """Returns the key under which the list of a kernel's studies is stored.

    The list has the studies of all source versions, compilers and devices.
    """
    return digest("studies-key/1", kernel)


def spills_key(study: str) -> str:
    """Returns the key of a study's recorded spill counts, from the study's own key."""
    return digest("spills-key/1", study)


def effort_key(study: str) -> str:
    """Returns the key, from a study's own key, of the record of the effort spent on the study by first calls."""
    return digest("effort-key/1", study)


def seeds_key(kernel: str) -> str:
    """Returns the key, from the kernel's name alone, of configs that did well in imported results of other tuners.

    The configs are only hints for a search.
    """
    return digest("seeds-key/1", kernel)


def ceilings_key(device: DeviceModel) -> str:
    """Returns the key of a device model's measured peak rates."""
    return digest("ceilings-key/1", device.to_json())
