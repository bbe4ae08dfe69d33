"""The kernels of a loaded bundle: chooses the variant that serves a call, requires consent, and loads the code."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import cache, cached_property, partial
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from silo.bundle.contents import (
    CPU_KIND,
    BundleKernel,
    BundleVariant,
    PackedCode,
    calls_of,
    host_cases,
    host_code,
    host_plan,
    variant_calls,
)
from silo.bundle.reader import Bundle, OpenKernel, ServedVariant, open_bundle
from silo.core.consent import Consent, HostCases, HostCode, PackedHostCode
from silo.core.device import HOST_MEMORY, Target
from silo.core.plugins import is_host_code, is_option, shipped_options
from silo.core.signature import NoDefault, Signature
from silo.core.values import JSON, Value
from silo.errors import BundleError, NoVariantError
from silo.launch.arguments import (
    MOST_VARIANTS,
    SeenCall,
    ValueKind,
    decide,
    describe_call,
    guard_of,
    place_of,
    rank,
)
from silo.launch.runtime import Binding, Launcher, OnMiss, VouchedCode, inspect_call, load_blob, make_launcher
from silo.machine.device_plugins import device_for, require_memory
from silo.settings import settings

if TYPE_CHECKING:
    from silo.building.code_forms import CompiledKernel
    from silo.building.loaded_kernels import CheckedLauncher
    from silo.core.decisions import Decision
    from silo.core.expressions import Node
    from silo.core.extents import HeldExtents
    from silo.core.launch_info import LaunchInfo
    from silo.core.protocols import Device
    from silo.core.recipes import CaseRecipe
    from silo.core.recorded_plans import RecordedPlan
    from silo.kernels.bundle_plans import BundledPlans
    from silo.launch.native import LoadedKernel
    from silo.store.signatures import SignedFile

__all__ = ["BundledKernel", "Kernels", "load"]

# A function that returns the bundle file that the code comes from, with its signature. Reading the signature costs
# time, so the function is called only if nothing else makes the code trusted.
Signed: TypeAlias = "Callable[[], SignedFile]"


class Kernels:
    """The kernels of a bundle: ``kernels.add(...)`` or ``kernels["add"](...)``. Made by :func:`load`.

    A kernel stays usable as long as it is referenced, even if the file is renamed or removed.
    """

    def __init__(self, bundle: Bundle, *, trust: bool, origin: str, signed: Signed | None = None) -> None:
        self._bundle = bundle
        self._signed = signed
        self._trust = trust
        self._origin = origin
        self._kernels: dict[str, BundledKernel] = {}

    def __getitem__(self, name: str) -> BundledKernel:
        bundled = self._kernels.get(name)
        if bundled is None:
            kernel = self._bundle.open_kernel(name)
            bundled = self._kernels[name] = _callable_kernel(
                self._bundle, kernel, self._origin, trust=self._trust, signed=self._signed
            )
        return bundled

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> NamedKernel: ...

    else:

        def __getattr__(self, name):  # noqa: ANN001, ANN204  # as above
            return self._named(name)

    def _named(self, name: str) -> BundledKernel | _InClass:
        if name.startswith("_"):
            raise AttributeError(name)
        if name not in self._bundle.kernel_names and any(kernel_name.startswith(f"{name}.") for kernel_name in self):
            return _InClass(self, name)
        try:
            return self[name]
        except BundleError as error:
            raise AttributeError(str(error)) from error

    @cached_property
    def plans(self) -> BundledPlans:
        """The plans of the bundle by name (:func:`silo.step`); each is called like a :class:`silo.Plan`."""
        from silo.kernels.bundle_plans import BundledPlans  # noqa: PLC0415  # most programs call kernels alone

        return BundledPlans(self._bundle.name, self._bundle.manifest.plans, self, self._consent_to)

    def _consent_to(self, plan: RecordedPlan) -> None:
        """Requires consent to the CPU code that a plan launches. Raises TrustError without it."""
        if self._trust:
            return
        from silo.machine.process_session import session  # noqa: PLC0415  # few programs run plans of bundles

        codes = [
            kernel.host_digest(number)
            for kernel in (self._bundle.open_kernel(name) for name in plan.kernels)
            for group in kernel.code
            if group.target.kind == CPU_KIND
            for number in group.numbers
        ]
        plans_to_trust = [host_plan(plan, codes)] if codes else []
        session().store.trust.require(plans_to_trust, origin=self._origin, signed=self._signed)

    def __iter__(self) -> Iterator[str]:
        return iter(self._bundle.kernel_names)

    def __len__(self) -> int:
        return len(self._bundle.kernel_names)

    def __contains__(self, name: object) -> bool:
        return name in self._bundle.kernel_names

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *self})

    def __repr__(self) -> str:
        return f"<kernels of {self._bundle.name}: {', '.join(self)}>"


class _InClass:
    """The kernels of a bundle that were written in one class: ``kernels.Ops.add`` is ``kernels["Ops.add"]``."""

    def __init__(self, kernels: Kernels, name: str) -> None:
        self._kernels = kernels
        self._name = name

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401  # a kernel, or the kernels of a class within
        return getattr(self._kernels, f"{self._name}.{name}")

    def __dir__(self) -> list[str]:
        return sorted(
            {
                kernel.removeprefix(f"{self._name}.").partition(".")[0]
                for kernel in self._kernels
                if kernel.startswith(f"{self._name}.")
            }
        )


# The decisions that calls of bundled kernels use in this process: kernel, bundle, target, bucket and config, in order
# of first use. ``decided`` of silo.calls.resolver holds the decisions of other kernels.
decided: dict[tuple[str, str, str, str, str], None] = {}


class BundledKernel:
    """A kernel of a bundle, called like its original: ``k(...)`` or ``k[grid](...)``."""

    def __init__(
        self, bundle: Bundle, kernel: OpenKernel, origin: str, *, trust: bool, signed: Signed | None = None
    ) -> None:
        self.bundle = bundle
        # returns the bundle's file with its signature, if any; the trust ledger checks the signature
        self._signed = signed
        self._kernel = kernel
        self._head = kernel.call_head
        self._origin = origin  # the path that the caller passed, shown with the advice to run `silo trust`
        self._trust = trust
        self._loaded: dict[tuple[str, LaunchInfo, str, int], LoadedKernel] = {}

    if TYPE_CHECKING:  # at run time, each kernel's own class has the native launcher in place of these methods

        def __call__(self, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401  # arrays of any library
            """Launches the kernel with the declared grid."""

        def __getitem__(self, grid: Any, /) -> Callable[..., None]:  # noqa: ANN401  # a tuple, an integer, a callable
            """Returns a callable that launches with this grid."""
            ...

    def __repr__(self) -> str:
        return f"<silo kernel {self.name} of {self.bundle.name}>"

    @property
    def name(self) -> str:
        """The kernel's name."""
        return self._head.name

    @property
    def contents(self) -> BundleKernel:
        """The bundle's full description of the kernel, with every variant.

        A launch does not use this: it reads only the variants that it may launch.
        """
        return self.bundle.kernel(self.name)

    @cached_property
    def launcher(self) -> Launcher:
        """The native launcher that calls go through."""
        if settings().flight != "0":
            from silo.kernels.recorded_texts import describe_kernels  # noqa: PLC0415  # few programs are recorded

            describe_kernels()
        return self.launcher_with(self._on_miss)

    @property
    def signature(self) -> Signature:
        """The kernel's parameters as its author declared them."""
        return self._head.signature

    @property
    def argument_names(self) -> tuple[str, ...]:
        """The parameters that a call passes: those that neither a config nor an expression sets."""
        reserved_names = {*self._head.config_names, *self._head.derived}
        return tuple(name for name in self._head.signature.names if name not in reserved_names)

    @property
    def grid(self) -> tuple[Node, ...] | None:
        """The declared grid."""
        return self._kernel.head.grid

    def launcher_with(self, on_miss: OnMiss) -> Launcher:
        """Makes a native launcher. ``on_miss`` has to find the variant that serves a call."""
        return make_launcher(
            self.name,
            self._head.signature,
            on_miss=on_miss,
            key=self._head.key,
            exact=self._guard[0],
            config_names=(*self._head.config_names, *self._head.derived),
            options=self._options,
            extents=self._guard[1],
            contiguous=self._head.contiguous,
        )

    @property
    def _options(self) -> tuple[str, ...]:
        """The options that calls may pass: options of Silo's own compilers, and others in the bundle's configs."""
        built_in = shipped_options()
        others = self._kernel.option_names.difference(built_in)
        return (*built_in, *(name for name in sorted(others) if is_option(name)))

    @property
    def holds_grid(self) -> bool:
        """Whether the kernel has code for particular grids, so that the guard compares the grid of each call."""
        held_extents = self._guard[1]
        return held_extents is not None and held_extents.grid

    @cached_property
    def _guard(self) -> tuple[tuple[str, ...], HeldExtents | None]:
        """The scalars and the extents whose exact values are part of the guard code."""
        return guard_of(self._kernel)

    def warmup(self, *args: object, **kwargs: object) -> CompiledKernel:
        """Loads the code for a call with these arguments, without launching; see :meth:`silo.Kernel.compiled`."""
        return self.compiled(*args, **kwargs)

    def compiled(self, *args: object, grid: object = None, **kwargs: object) -> CompiledKernel:
        """Returns the code that serves a call with these arguments; see :meth:`silo.Kernel.compiled`."""
        from silo.building.code_forms import CodeForms, CompiledKernel  # noqa: PLC0415  # few calls look at it

        binding = self.launcher.resolve(*args, **kwargs, **({} if grid is None else {"grid": grid}))
        artifact = cast("ServedVariant", binding.tag).artifact
        forms = CodeForms(artifact, lambda ref: self.bundle.blob(ref.sha256))
        return CompiledKernel(artifact, forms, partial(self._bound, binding, None))

    def _bound(self, binding: Binding, grid: object) -> Launcher | CheckedLauncher:
        from silo.building.loaded_kernels import bound_launcher  # noqa: PLC0415  # most calls go through the guard

        variant = cast("ServedVariant", binding.tag).artifact.variant
        return bound_launcher(self.launcher, self._head.signature, binding, variant, grid=grid, release_gil=True)

    def bind(self, *args: object, grid: object = None, **kwargs: object) -> Launcher | CheckedLauncher:
        """Returns a launcher without a guard for calls like this example; see :meth:`silo.Kernel.bind`."""
        binding = self.launcher.resolve(*args, **kwargs, **({} if grid is None else {"grid": grid}))
        return self._bound(binding, grid)

    def explain(self, *args: object, **kwargs: object) -> str:
        """Explains which variant a call with these arguments gets and why, and why the other variants are rejected."""
        call = inspect_call(self.launcher, self._head.signature, *args, **kwargs)
        return self.explain_on(call, device_for(self.name, call.device, self.serves))

    def explain_on(self, call: SeenCall, device: Device) -> str:
        """Like :meth:`explain`, but on a device that may differ from the device of the call's arrays."""
        best = next(iter(self.rank_numbers(call, device, 1)), None)
        lines = [describe_call(call), f"device: {device.target} ({device.model})"]
        for number, (label, decision) in enumerate(self._decisions(call, device)):
            word = "chosen" if number == best else "accepted" if decision else "rejected"
            lines.append(f"{word}: {label}: {decision.reason}")
        return "\n".join(lines)

    def recipes(self) -> list[CaseRecipe]:
        """Returns the recipes of the kernel's cases."""
        from silo.bundle.documents import case_recipes  # noqa: PLC0415  # a program that only launches needs no cases

        return case_recipes(self.bundle, self.name)

    def rank(self, call: SeenCall, device: Device) -> list[BundleVariant]:
        """Returns the variants that a call may use on a device, best first."""
        return [self._kernel[number] for number in self.rank_numbers(call, device)]

    def rank_numbers(self, call: SeenCall, device: Device, most: int = MOST_VARIANTS) -> tuple[int, ...]:
        """Returns the numbers of the variants that a call may use on a device, best first, at most ``most``."""
        return rank(self._kernel, call, place_of(device, self._kernel.code), most)

    def variant(self, number: int) -> BundleVariant:
        """Returns the variant with a number, which is its position in the file."""
        return self._kernel[number]

    def scalars(self, call: SeenCall) -> dict[str, Value]:
        """Returns the values of the call's scalar arguments by name, with defaults for omitted ones."""
        return _scalars(call, self._head.signature)

    def choose(self, call: SeenCall, device: Device) -> BundleVariant:
        """Returns the variant that serves a call on a device.

        If none does, raises NoVariantError with the reason for each variant.
        """
        return self._kernel[self._chosen(call, device)]

    def _chosen(self, call: SeenCall, device: Device, compiler: str = "") -> int:
        numbers = self.rank_numbers(call, device, MOST_VARIANTS if compiler else 1)
        chosen = next((number for number in numbers if not compiler or self._compiler_of(number) == compiler), None)
        if chosen is None:
            reasons = self._rejections(call, device)
            raise NoVariantError(
                f"{self.bundle.name}: no variant fits {describe_call(call)} on {device.target}", reasons
            )
        return chosen

    def _compiler_of(self, number: int) -> str:
        return self._kernel[number].artifact.compiler

    def _rejections(self, call: SeenCall, device: Device) -> list[str]:
        """Returns the reasons why no variant serves a call: a line for each variant.

        Variants for another device's target share one line.
        """
        foreign: dict[int, str] = {}
        for group in self._kernel.code:
            if not (decision := device.runs(group.target, group.blob_kind)):
                line = f"{len(group.numbers)} variants for {group.target}: {decision.reason}"
                foreign |= dict.fromkeys(group.numbers, line)
        decisions = enumerate(self._decisions(call, device))
        own = [
            f"{label}: {variant_decision.reason}"
            for number, (label, variant_decision) in decisions
            if not variant_decision and number not in foreign
        ]
        return [*own, *dict.fromkeys(foreign.values())]

    def consent(self, variant: BundleVariant) -> Consent | None:
        """Returns consent to load a variant's native code and to call it as the bundle describes.

        Returns None for GPU code, which needs no consent.

        Raises:
            TrustError: the code is not trusted.
        """
        if not variant.artifact.runs_on_host:
            return None
        return self._consented(host_code(variant, self._calls))

    def _consented(self, code: HostCode | PackedHostCode) -> Consent:
        if self._trust:
            from silo.store.trust_ledger import consent_of_caller  # noqa: PLC0415  # code for GPUs needs no consent

            return consent_of_caller(code)
        from silo.store.store import store_of  # noqa: PLC0415  # nor a store

        return store_of(settings()).trust.vouch(code, origin=self._origin, signed=self._signed)

    @cached_property
    def _calls(self) -> str:
        return calls_of(self._kernel.head)

    def variant_calls(self, variant: BundleVariant) -> JSON:
        """Returns a description of how a variant is called: consent to its native code holds only for these calls.

        The description has the variant's config, and a digest of the kernel's parameters, grid and derived values.
        """
        return variant_calls(variant, self._calls)

    def require_consent(self, device: Device) -> None:
        """Requires consent to all native code that this device may run, and to running it on the kernel's cases.

        Tuning calls this before it prepares the cases.

        Raises:
            TrustError: a part of the code is not trusted.
        """
        if self._trust:
            return
        numbers = [
            number
            for group in self._kernel.code
            if is_host_code(group.blob_kind) and device.runs(group.target, group.blob_kind)
            for number in group.numbers
        ]
        if not numbers:
            return
        from silo.store.store import store_of  # noqa: PLC0415  # code for GPUs needs no store

        native = sorted(
            number for group in self._kernel.code if is_host_code(group.blob_kind) for number in group.numbers
        )
        codes = {number: host_code(self._kernel[number], self._calls) for number in native}
        consents: list[HostCode | HostCases] = [codes[number] for number in sorted(numbers)]
        cases = host_cases(self._kernel.head, codes.values())
        store_of(settings()).trust.require(
            [*consents, *(() if cases is None else (cases,))],
            origin=self._origin,
            signed=self._signed,
        )

    def code(self, variant: BundleVariant) -> VouchedCode:
        """Returns a variant's verified code, with consent if it needs consent. Raises TrustError."""
        consent = self.consent(variant)
        return VouchedCode(variant.artifact, self.bundle.blob(variant.artifact.blob.sha256), consent)

    def launcher_on(self, device: Device, compiler: str = "") -> Launcher:
        """Makes a native launcher whose calls run on ``device``, even if their arrays are on another device.

        If ``compiler``, the identity of a compiler, is not empty, calls use only code of that compiler.
        """
        return self.launcher_with(partial(self._on_miss, device=device, compiler=compiler))

    def host_device(self) -> Device:
        """Returns the device on which calls with arrays in host memory run."""
        return device_for(self.name, (HOST_MEMORY, 0), self.serves)

    @property
    def targets(self) -> tuple[Target, ...]:
        """The targets for which the bundle has code of this kernel, in the order of the file."""
        return tuple(dict.fromkeys(group.target for group in self._kernel.code))

    def serves(self, device: Device) -> bool:
        """Returns whether some code of the kernel runs on a device."""
        return any(device.runs(group.target, group.blob_kind) for group in self._kernel.code)

    def _on_miss(self, call: SeenCall, device: Device | None = None, compiler: str = "") -> Binding:
        if device is None:
            device = device_for(self.name, call.device, self.serves)
        else:
            require_memory(self.name, device, call.memory)
        chosen = self._chosen(call, device, compiler)
        code = self._kernel.packed(chosen)
        decided[self.name, f"bundle {self.bundle.identity}", code.target, "", code.config] = None
        return self._kernel.bind(chosen, self._load(chosen, code, device), code, device)

    def _decisions(self, call: SeenCall, device: Device) -> list[tuple[str, Decision]]:
        """Returns, for each variant, a description in one line and the decision whether it serves the call."""
        return decide(self._kernel, call, place_of(device, self._kernel.code))

    def _load(self, number: int, code: PackedCode, device: Device) -> LoadedKernel:
        """Loads the code of a variant on a device.

        Variants with the same blob and launch info share one loaded kernel.
        """
        blob = code.blob
        key = (blob.sha256, code.launch, device.target.kind, device.index)
        consent = None  # required for each variant, even of loaded code: variants may call the same code differently
        if is_host_code(blob.kind):
            digest = self._kernel.host_digest(number)
            consent = self._consented(PackedHostCode(blob.sha256, blob.kind, code.launch, digest))
        loaded = self._loaded.get(key)
        if loaded is None:
            data = self.bundle.blob(blob.sha256)
            new_kernel = load_blob(device, code.launch, data, blob.kind, code.kernel, consent=consent)
            return self._loaded.setdefault(key, new_kernel)
        return loaded


def _scalars(call: SeenCall, signature: Signature) -> dict[str, Value]:
    """Returns the values of scalar arguments by name, with defaults for omitted ones."""
    values: dict[str, Value] = {p.name: p.default for p in signature.parameters if not isinstance(p.default, NoDefault)}
    for argument in call.arguments:
        if argument.kind in (ValueKind.INT, ValueKind.BOOL, ValueKind.FLOAT):
            values[argument.name] = argument.number
        elif argument.kind is ValueKind.CONSTANT:
            values[argument.name] = cast("Value", argument.value)
    return values


def _callable_kernel(
    bundle: Bundle, kernel: OpenKernel, origin: str, *, trust: bool, signed: Signed | None
) -> BundledKernel:
    """Makes a bundled kernel whose calls reach the native launcher without a Python frame in between.

    Python looks ``__call__`` up on the class. A launcher is not a descriptor, so Python does not bind it as a method
    but calls it as it is. Therefore each kernel gets a class of its own with its launcher as ``__call__``.
    """
    kind = type("BundledKernel", (BundledKernel,), {"__module__": __name__, "__doc__": BundledKernel.__doc__})
    bundled = kind(bundle, kernel, origin, trust=trust, signed=signed)
    setattr(kind, "__call__", bundled.launcher)  # noqa: B010  # a class attribute that is not a method
    setattr(kind, "__getitem__", staticmethod(bundled.launcher.__getitem__))  # noqa: B010
    return bundled


if TYPE_CHECKING:

    class NamedKernel(BundledKernel):
        """The type of a bundle's attribute, for type checkers: a kernel, or a class whose attributes are kernels."""

        def __getattr__(self, name: str) -> NamedKernel: ...


def load(path: str | os.PathLike[str], *, trust: bool = False) -> Kernels:
    """Opens a ``.silo`` file. Needs no Triton, no torch, no compiler; reads only the parts that are used.

    Args:
        path: the file.
        trust: load the file's native CPU code even if this user's store did not build the code, ``silo trust`` was not
            run on the file, and no trusted key signed it.

    Raises:
        BundleFormatError: the file is not a bundle, or is truncated or damaged.
        BundleVersionError: a newer Silo wrote the file.
    """
    bundle = open_bundle(path)
    absolute = os.path.abspath(path)  # noqa: PTH100  # as it is now: a program may change its folder
    return Kernels(bundle, trust=trust, origin=os.fspath(path), signed=cache(partial(_signed_file, bundle, absolute)))


def _signed_file(bundle: Bundle, path: str) -> SignedFile:
    from silo.bundle.signing import signed_file  # noqa: PLC0415  # only for code that nothing else vouches for

    return signed_file(bundle, path)
