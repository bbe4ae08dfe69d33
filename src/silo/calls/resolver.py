"""The resolver of a kernel: decides and compiles code for the calls that its launcher cannot serve yet."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, cast

from silo.artifacts.artifact import Artifact
from silo.building.call_context import CallContext
from silo.building.compilation import Compilation, compiler_identity, lowered
from silo.building.derived_constexprs import derive
from silo.building.kernel_declaration import DeclaredKernel
from silo.building.loaded_kernels import HeuristicLauncher, bound_launcher, guarded_launcher, stored_code
from silo.building.prepared_calls import ZeroingLauncher
from silo.calls.candidate_filters import NumericsOf, is_deterministic, prune
from silo.calls.decision import decide_call, frozen_error, mode_of, unfinished
from silo.calls.first_call import measurable, most_promising, tune_live, tuned_live
from silo.compile.build_list import Chosen
from silo.compile.toolchain import select_compiler, target_kinds
from silo.core.config import Config, ConfigSet
from silo.core.decisions import Accepted, Decision, Origin, Rejected
from silo.core.device import HOST_MEMORY, Target
from silo.core.protocols import Device
from silo.core.search_space import SearchSpace
from silo.core.signature import NoDefault, ParameterKind, Signature
from silo.core.specialization import Specialization
from silo.core.values import Value
from silo.core.variant import Variant
from silo.errors import ArgumentError, BlobLostError, SpaceError, TargetError
from silo.forks import Mutex
from silo.heuristics.heuristic_space import BoundSpace
from silo.launch.arguments import SeenCall, ValueKind, call_grid, describe_call
from silo.launch.runtime import Binding, Launcher, bind, inspect_call, load_code
from silo.machine.device_plugins import device_for, require_memory
from silo.machine.process_session import session
from silo.measuring.study_key import StudyKey, measure_policy
from silo.sources.kernel_source import BringsCode
from silo.status_line import announce, working
from silo.text_tables import format_duration
from silo.tuner.policy import Action, PolicyDecision, TuneMode

if TYPE_CHECKING:
    from silo.building.code_forms import CompiledKernel
    from silo.core.code_facts import CodeFacts
    from silo.tuner.session_values import TuneOutcome

__all__ = ["Resolved", "Resolver"]

_log = logging.getLogger("silo")


# The decisions that calls of this process use, as (kernel, source, target, bucket, config). Read by
# silo.kernels.agreement.
decided: dict[tuple[str, str, str, str, str], None] = {}


@dataclass(frozen=True)
class Resolved:
    """The artifact that serves a call, and the decision that chose it.

    The launcher's binding (the loaded code that serves the call) holds this object in its ``tag`` field.
    """

    artifact: Artifact
    decision: PolicyDecision
    kernel: DeclaredKernel


class Resolver:
    """Handles the calls for which a kernel's launcher has no code: decides on a config, compiles it, loads the code."""

    def __init__(self, kernel: DeclaredKernel) -> None:
        self._kernel = kernel
        # Reentrant, because tuning launches candidates through the same launcher, so one call without code may cause
        # another.
        self._lock = Mutex()
        # The id of the process that is tuning, or 0. After a fork the child has another id, so it does not count as
        # tuning.
        self._tuning_process = 0
        self._guesses: dict[tuple[str, Signature, Specialization], BoundSpace] = {}
        self._numerics = NumericsOf(kernel)
        self._compilers: dict[Target, Accepted] = {}  # decisions of _serves() that accepted a target
        self._logged_reasons: set[str] = set()  # reasons why calls are not tuned, each of which is logged once

    @cached_property
    def native(self) -> Launcher:
        """The native launcher of the kernel."""
        return guarded_launcher(self._kernel, self._on_miss, release_gil=self._kernel.release_gil)

    def launcher_on(self, device: Device) -> Launcher:
        """Makes a launcher whose calls run on ``device``, even if their arrays would choose another device."""
        return guarded_launcher(
            self._kernel, partial(self._on_miss, device=device), release_gil=self._kernel.release_gil
        )

    def launcher_accepting(self, accept: Callable[[Artifact], None]) -> Launcher | HeuristicLauncher:
        """Makes a launcher that calls ``accept`` with the artifact for each new guard code, before the first launch.

        If ``accept`` raises, nothing is launched and the caller gets the exception.
        """

        def on_miss(call: SeenCall) -> Binding:
            binding = self._on_miss(call)
            accept(cast("Resolved", binding.tag).artifact)
            return binding

        return self._complete(guarded_launcher(self._kernel, on_miss, release_gil=self._kernel.release_gil))

    def lowered_call(self, args: tuple[object, ...], kwargs: Mapping[str, object]) -> tuple[Variant, CodeFacts]:
        """Lowers a call with the first config. Returns its variant and the facts of its code. Compiles nothing.

        An array argument may be given as its dtype, as in :meth:`compiled`.
        """
        args, call_values = self._stood_in(args, kwargs)
        call_values = self._completed(args, call_values)
        signature = self._kernel.source.signature
        context = self.understand(inspect_call(self.native, signature, *args, **call_values))
        variant = self.variant(context, self.decide(context, can_tune=False, mode=TuneMode.OFF).config)
        return variant, lowered(self._kernel.source, variant).facts

    def lowered_on(self, call: SeenCall, device: Device) -> tuple[Variant, CodeFacts]:
        """Lowers ``call`` for ``device``; ``call`` describes a call and holds no arrays.

        Returns its variant and the facts of its code.
        """
        context = self.understand(call, device)
        variant = self.variant(context, self.decide(context, can_tune=False, mode=TuneMode.OFF).config)
        return variant, lowered(self._kernel.source, variant).facts

    def compiled_on(self, call: SeenCall, device: Device) -> Artifact:
        """Returns the code for ``call`` with the best known config; ``call`` describes a call and holds no arrays.

        Measures nothing.

        Raises:
            FrozenError: tuning is frozen and no config is known.
        """
        context = self.understand(call, device)
        with self._lock:
            return self._compiled(self.variant(context, self.chosen(context).config))

    @cached_property
    def direct(self) -> Any:  # noqa: ANN401  # the native launcher, or a Python object that wraps it
        """The launcher of calls without checking mode."""
        launcher = self._unzeroed
        return ZeroingLauncher(launcher, self.native, self._kernel) if self._kernel.zeroed else launcher

    @cached_property
    def _unzeroed(self) -> Launcher | HeuristicLauncher:
        """Like :attr:`direct`, but without setting arguments to zero: tuning does that outside of the measured time."""
        return self._complete(self.native)

    def _complete(self, launcher: Launcher) -> Launcher | HeuristicLauncher:
        """Wraps a launcher so that the kernel's heuristics written in Python, if there are any, run first."""
        return HeuristicLauncher(launcher, self._kernel) if self._kernel.derived.opaque else launcher

    def compiled(self, args: tuple[object, ...], grid: object, kwargs: Mapping[str, object]) -> CompiledKernel:
        """Compiles and loads the code for a call, and returns it as a compiled kernel."""
        from silo.building.code_forms import compiled_kernel  # noqa: PLC0415  # few programs call this

        args, call_values = self._stood_in(args, kwargs)
        call_values = self._completed(args, call_values)
        binding = self.native.resolve(*args, **call_values, **({} if grid is None else {"grid": grid}))
        return compiled_kernel(self._kernel, cast("Resolved", binding.tag).artifact, binding, self.native)

    def _stood_in(
        self, args: tuple[object, ...], kwargs: Mapping[str, object]
    ) -> tuple[tuple[object, ...], Mapping[str, object]]:
        """Returns the arguments with an array in place of each dtype."""
        from silo.building.code_forms import default_place, stand_in  # noqa: PLC0415  # few programs call this

        if self._kernel.extents is not None:  # the array's shape decides the code, so a dtype is not sufficient
            return args, kwargs
        parameters = self._kernel.source.signature.parameters
        # for these parameters a dtype is an ordinary value
        constant = {parameter.name for parameter in parameters if parameter.kind is ParameterKind.CONSTEXPR}

        def placed(name: str, value: object) -> object:
            return value if name in constant else stand_in(value, default_place)

        names = (*(parameter.name for parameter in parameters), *("" for _ in args[len(parameters) :]))
        ordered = tuple(placed(name, value) for name, value in zip(names, args, strict=False))
        return ordered, {name: placed(name, value) for name, value in kwargs.items()}

    def bind(self, args: tuple[object, ...], grid: object, kwargs: Mapping[str, object]) -> Any:  # noqa: ANN401
        """Returns a launcher without a guard for calls like this one."""
        call_values = {**self._completed(args, kwargs), **({} if grid is None else {"grid": grid})}
        binding = self.native.resolve(*args, **call_values)
        resolved = cast("Resolved", binding.tag)
        return bound_launcher(
            self.native,
            self._kernel.source.signature,
            binding,
            resolved.artifact.variant,
            grid=grid,
            release_gil=self._kernel.release_gil,
            constant=self._kernel.source.constant,
        )

    def explain(self, args: tuple[object, ...], grid: object, kwargs: Mapping[str, object]) -> str:
        """Explains in words which variant a call gets and why."""
        kernel = self._kernel
        call_values = {**self._completed(args, kwargs), **({} if grid is None else {"grid": grid})}
        context = self.understand(inspect_call(self.native, kernel.source.signature, *args, **call_values))
        if isinstance(kernel.source, BringsCode):  # the source has finished code, so no config has to be decided
            device = context.device
            return "\n".join(
                [
                    describe_call(context.call),
                    f"device: {device.target} ({device.model})",
                    *kernel.source.explain(device.target, context.specialization),
                ]
            )
        decision = self.decide(context, can_tune=False)
        if decision.action is Action.REFUSE:
            return f"{describe_call(context.call)}\n{frozen_error(kernel, self.problem(context), context)}"
        variant = self.variant(context, decision.config)
        compiler = compiler_identity(kernel.source.kind, variant.target)
        artifact = session().store.artifacts.get(variant.artifact_key(compiler))
        lines = [
            describe_call(context.call),
            f"device: {context.device.target} ({context.device.model})",
            "assumes: " + (", ".join(variant.specialization.assumptions) or "nothing"),
            f"config: {decision.config} ({decision.origin.value}: {decision.reason})",
            f"artifact: {variant.artifact_key(compiler)[:16]}, " + ("in the store" if artifact else "not compiled yet"),
            *self._expected(context, decision),
            *self._heuristic(context),
            *self._progress(context),
            *self._rivals(context, decision.config),
        ]
        return "\n".join(lines)

    def _expected(self, context: CallContext, decision: PolicyDecision) -> list[str]:
        """Returns lines about a config that dispatch rules predict (its expected loss); none for other decisions."""
        if decision.origin is not Origin.RULE:
            return []
        study_key = self.problem(context)
        generalization = study_key.generalization(context.specialization, context.reach)
        if generalization is None:
            return []
        expected = generalization.expect(tuple(context.values[name] for name in study_key.key))
        # ``expected`` is the loss of the config that the study's trials predict for this size. The dispatch rules may
        # have chosen a different config: the winner with another compiler.
        lines = [f"loss: {expected}"] if expected.config == decision.config else []
        return [*lines, generalization.text]

    def _progress(self, context: CallContext) -> list[str]:
        """Returns a line about first calls that were cut off before all configs were measured, if there were any."""
        progress = unfinished(self.problem(context), context)
        return [] if progress is None else [f"measured: {progress}"]

    def _heuristic(self, context: CallContext) -> list[str]:
        """Returns the explanation of the heuristic that made the space, if a heuristic did."""
        if context.rule is None:
            return []
        return [context.rule.explain(context.device.target, context.device.facts(), context.values)]

    def _rivals(self, context: CallContext, chosen: Config) -> list[str]:
        """Returns a line for each other config of the space, with the reason why it was not chosen."""
        study_key = self.problem(context)
        bucket = context.bucket
        winner = study_key.winner(context.specialization, bucket)
        times = {} if winner is None else {row.config.order_key: row.time.median_ns for row in winner.runners_up}
        failed = study_key.failures(context.specialization, bucket)
        lines: list[str] = []
        measured = [] if winner is None else [row.config for row in winner.runners_up if row.config in context.searched]
        for config in ConfigSet((*context.space.configs(), *measured)):
            if config.order_key == chosen.order_key:
                continue
            if config.order_key in context.left_out:
                reason = context.left_out[config.order_key]
            elif config not in context.searched:
                reason = "the call sets " + ", ".join(f"{name}={value}" for name, value in context.given.items())
            elif config.order_key in failed:
                reason = failed[config.order_key]
            elif config.order_key in times and winner is not None:
                reason = f"{times[config.order_key] / max(winner.median_ns, 1):.2f} times the winner's time"
            else:
                reason = "not measured"
            lines.append(f"rejected: {config}: {reason}")
        return lines

    def understand(self, call: SeenCall, device: Device | None = None) -> CallContext:
        """Returns the context of a call: its argument types, specialization, device and candidates.

        Without ``device``, the call's arrays decide the device.
        """
        kernel = self._kernel
        if device is None:
            device = device_for(kernel.name, call.device, self._serves)
        else:
            require_memory(kernel.name, device, call.memory)
        facts = call.facts(kernel.source.constant)
        signature, specialization = kernel.source.specialize(facts)
        if kernel.source.extents is not None:
            specialization = replace(specialization, extents=call.extents(kernel.source.extents))
        open_blocks = [name for name in kernel.open_blocks if name not in specialization.constant_values]
        rule = self._guessed(call, device, signature, specialization) if open_blocks else kernel.rule
        deterministic = is_deterministic(kernel)
        if deterministic and rule is not None:
            rule = rule.deterministic
        config_names = set(kernel.config_names if rule is None else rule.config_names)
        given_constants = {name: value for name, value in specialization.constants if name in config_names}
        given_constants.update({name: kernel.source.constant(value) for name, value in call.options.items()})
        values: dict[str, Value] = {
            argument.name: argument.number
            for argument in call.arguments
            if argument.kind in (ValueKind.INT, ValueKind.BOOL, ValueKind.FLOAT)
        }
        constants = {name: value for name, value in specialization.constants if name not in config_names}
        plain = {p.name: p.default for p in signature.parameters if not isinstance(p.default, NoDefault)}
        key_values = {**plain, **values, **constants}
        key = rule.reads if open_blocks and rule is not None else kernel.key
        for name in key:
            if name not in key_values:
                raise ArgumentError(
                    f"{kernel.name}: tuning depends on {name} (its key), which is {_kind_of_object(call, name)} in "
                    "this call; "
                    f"a key holds scalars, so pass one or take {name} out of key={list(key)}"
                )
        integers = {name: key_values[name] for name in key if isinstance(key_values.get(name), int)}
        space = kernel.space if rule is None else rule.space(device.target, device.facts(), key_values)
        specialization = specialization.with_constants(constants)
        searched, left_out = self._searched(space, integers, given_constants), dict[bytes, str]()
        if kernel.prunes:
            searched, left_out = prune(kernel, call, searched)
        context = CallContext(
            call=call,
            device=device,
            signature=signature,
            specialization=specialization,
            values=cast("Mapping[str, Value]", key_values),
            given=given_constants,
            searched=searched,
            space=space,
            key=key,
            config_names=tuple(sorted(config_names)),
            rule=rule,
            deterministic=deterministic,
            left_out=left_out,
        )
        if not deterministic:
            return context
        # A space that consists of groups of choices is reduced to its listed configs, because only their code was
        # examined.
        candidates, other_bits = self.same_bits(context, context.candidates)
        reasons = {key: f"deterministic mode: {reason}" for key, reason in other_bits.items()}
        return replace(context, searched=ConfigSet(candidates), left_out={**left_out, **reasons}, other_bits=other_bits)

    def same_bits(
        self, context: CallContext, configs: tuple[Config, ...]
    ) -> tuple[tuple[Config, ...], dict[bytes, str]]:
        """Returns the configs whose results are bitwise equal to the first config's, and why others are left out."""
        if not context.deterministic or len(configs) == 1:
            return configs, {}
        judged = self._numerics.judge([self.variant(context, config) for config in configs])
        left_out = {key: decision.reason for key, decision in judged.items() if not decision}
        return tuple(config for config in configs if config.order_key not in left_out), left_out

    def _guessed(
        self, call: SeenCall, device: Device, signature: Signature, specialization: Specialization
    ) -> BoundSpace:
        """Returns the inferred space of a kernel that declares none, for a call that leaves block sizes open.

        Raises SpaceError if no space can be inferred.
        """
        from silo.calls.inferred_space import check_grid, guess_space  # noqa: PLC0415  # most kernels declare a space

        other_constants = {
            name: value for name, value in specialization.constants if name not in self._kernel.open_blocks
        }
        specialization = specialization.with_constants(other_constants)
        key = (self._kernel.source.fingerprint, signature, specialization)
        if key not in self._guesses:
            self._guesses[key] = guess_space(self._kernel, device.target, signature, specialization)
        check_grid(self._kernel, self._guesses[key], call.grid, self._kernel.grid)
        return self._guesses[key]

    def _searched(
        self, space: SearchSpace, integers: Mapping[str, Value], constexprs: Mapping[str, Value]
    ) -> SearchSpace:
        try:
            return space.for_call(integers, constexprs)
        except SpaceError as error:
            raise SpaceError(f"{self._kernel.name} ({self._kernel.location}): {error}") from error

    def problem(self, context: CallContext) -> StudyKey:
        """Returns the study key of a call: the part of its study that calls of other sizes share."""
        kernel = self._kernel
        target = context.device.target
        return StudyKey(
            kernel=kernel.name,
            source=kernel.source.fingerprint,
            signature=context.signature,
            target=target,
            compiler=self._compiler_identity(context),
            device=context.device,
            policy=measure_policy(context.device),
            key=context.key,
            records=session().store.records,
        )

    def _compiler_identity(self, context: CallContext) -> str:
        source, device = self._kernel.source, context.device
        try:
            return compiler_identity(source.kind, device.target)
        except TargetError as error:
            kinds = target_kinds(source.kind)
            if HOST_MEMORY not in device.memory.types or not kinds or device.target.kind in kinds:
                raise
            raise TargetError(
                f"{self._kernel.name}: nothing here compiles a {source.kind} kernel for {device.target.kind}, where "
                f"the arrays of this call are: give it arrays on {' or '.join(kinds)}"
            ) from error

    def decide(
        self,
        context: CallContext,
        *,
        can_tune: bool = True,
        mode: TuneMode | None = None,
        can_compile: bool | None = None,
    ) -> PolicyDecision:
        """Decides whether a call uses a config, is tuned, or is refused.

        ``can_compile``: whether configs may be compiled to find out whether trials of an earlier compiler still hold;
        None means the same as ``can_tune``.
        """

        def can_measure() -> Decision:
            if not can_tune:
                return Rejected("explaining measures nothing")
            decision = measurable(self._kernel, context, self.variant(context, context.candidates[0]))
            if isinstance(decision, Rejected) and decision.reason not in self._logged_reasons:
                self._logged_reasons.add(decision.reason)
                announce(f"{self._kernel.name} is not tuned on calls such as this one: {decision.reason}")
            return decision

        def carry() -> tuple[Config, ...]:
            if can_tune if can_compile is None else can_compile:
                return self.carry(context)
            from silo.measuring.earlier_studies import contenders_of  # noqa: PLC0415  # see carry

            study = study_key.study(context.specialization, context.bucket)
            return contenders_of(study, study_key.records, context.reach)

        def promising() -> Config | None:
            configs = most_promising(self._kernel, context, context.searched, partial(self.variant, context), 1)
            return next(iter(configs), None)

        study_key, mode = self.problem(context), mode or mode_of(self._kernel)
        return decide_call(self._kernel, study_key, context, mode, can_measure, carry, promising)

    def carry(self, context: CallContext) -> tuple[Config, ...]:
        """Decides a call's study without measuring, by the trials of an earlier compiler that still hold.

        Called only for a study without trials. Returns the result of
        :func:`silo.measuring.earlier_studies.carry_decision`: the configs to try first.
        """
        from silo.measuring.earlier_studies import carry_decision  # noqa: PLC0415  # decided calls skip it
        from silo.measuring.evaluators import CompiledArtifacts  # noqa: PLC0415

        study = self.problem(context).study(context.specialization, context.bucket)
        compilation = Compilation(session(), self._kernel.source, trials=True)
        artifacts = CompiledArtifacts(compilation, partial(self.variant, context))
        return carry_decision(study, context.reach, artifacts, session().store)

    def chosen(self, context: CallContext, *, mode: TuneMode | None = None) -> Chosen:
        """Returns the config for a call, without measuring. Raises FrozenError if no config may be used."""
        decision = self.decide(context, can_tune=False, mode=mode, can_compile=True)
        if decision.action is Action.REFUSE:
            raise frozen_error(self._kernel, self.problem(context), context)
        return Chosen(decision.config, decision.origin)

    def variant(self, context: CallContext, config: Config) -> Variant:
        """Returns the variant of a call with a config. Derived constexprs count as values that the caller passed."""
        kernel = self._kernel
        # If a call passes block sizes, they are in context.values; if it leaves them out, the config has them.
        # Functions that compute derived constexprs may read values of both sorts.
        values = {**config.as_dict(), **context.values}
        derived = derive(kernel.derived, values, config.as_dict(), context.device.facts())
        own = {name: value for name, value in derived.items() if name not in context.specialization.constant_values}
        own |= kernel.source.constants_of(config, context.specialization)
        specialization = context.specialization.with_constants({**context.specialization.constant_values, **own})
        return Variant(
            kernel=kernel.name,
            source=kernel.source.fingerprint,
            signature=context.signature,
            specialization=self.with_grid(context, config, specialization),
            config=config,
            target=context.device.target,
        )

    def with_grid(self, context: CallContext, config: Config, specialization: Specialization) -> Specialization:
        """Returns the specialization, with the call's grid for this config if the grid decides the code."""
        extents = self._kernel.source.extents
        if extents is None or not extents.grid:
            return specialization

        values = {**config.as_dict(), **specialization.constant_values}
        grid = call_grid(context.call, self._kernel.grid, values, context.device.facts())
        return replace(specialization, grid=grid)

    def _serves(self, device: Device) -> Decision:
        """Returns whether an installed compiler serves a device, and remembers the compiler that was found."""
        if device.target not in self._compilers:
            try:
                compiler = select_compiler(self._kernel.source.kind, device.target)
            except TargetError as error:
                return Rejected(str(error))
            self._compilers[device.target] = Accepted(compiler.declaration.name)
        return self._compilers[device.target]

    def _on_miss(self, call: SeenCall, device: Device | None = None) -> Binding:
        with self._lock:
            context = self.understand(call, device)
            decision = self._led(context, device) or self.decide(context, can_tune=self._tuning_process != os.getpid())
            config = decision.config
            if decision.action is Action.REFUSE:
                raise frozen_error(self._kernel, self.problem(context), context)
            if decision.action is Action.BESIDE:
                decision = self._begin_search(context, decision)
            if decision.action is Action.TUNE:
                self._tuning_process = os.getpid()
                try:
                    launcher = self._unzeroed if device is None else self._complete(self.launcher_on(device))
                    config = self._tuned(context, launcher, decision.origin) or config
                finally:
                    self._tuning_process = 0
            variant = self.variant(context, config)
            try:
                binding = self._loaded(context, variant, decision)
            except BlobLostError as error:
                _log.info("%s; it is compiled again", error)
                binding = self._loaded(context, variant, decision)
            if self._tuning_process != os.getpid():  # a candidate that is being measured does not count as a decision
                bucket = ", ".join(f"{name}={value}" for name, value in zip(context.key, context.bucket, strict=True))
                decided[variant.kernel, variant.source, str(variant.target), bucket, str(config)] = None
            return binding

    def _led(self, context: CallContext, device: Device | None) -> PolicyDecision | None:
        """Returns the decision of leader mode; None in other modes, or if the call has only one candidate."""
        kernel = self._kernel
        if mode_of(kernel) is not TuneMode.LEADER or self._tuning_process == os.getpid():
            return None
        if len(context.candidates) == 1 and not context.reach.refinable:
            return None

        def tuned() -> TuneOutcome | None:
            self._tuning_process = os.getpid()
            self.carry(context)
            try:
                launcher = self._unzeroed if device is None else self._complete(self.launcher_on(device))
                study_key = self.problem(context)
                variant_of = partial(self.variant, context)
                return tuned_live(kernel, context, study_key, variant_of, launcher, Origin.FIRST)
            finally:
                self._tuning_process = 0

        from silo.calls.leader import led_config  # noqa: PLC0415  # few programs use this mode

        config = led_config(
            kernel,
            self.problem(context),
            context,
            lambda: measurable(kernel, context, self.variant(context, context.candidates[0])),
            tuned,
        )
        return PolicyDecision(Action.USE, config, Origin.LOCK, "the lock's entry, which the leader wrote")

    def _begin_search(self, context: CallContext, decision: PolicyDecision) -> PolicyDecision:
        """Begins a background search for a call.

        Loads the decision's config first, so that it is compiled before the search's configs. Returns the decision for
        the call: to tune during the call if nothing can be measured in the background.
        """
        from silo.calls.background_search import begin_search  # noqa: PLC0415  # few programs use this mode

        self._compiled(self.variant(context, decision.config))
        begun = begin_search(
            self._kernel,
            context,
            self.problem(context),
            partial(self.variant, context),
            decision,
            self.native,
            self._lock,
        )
        if begun:
            return replace(decision, action=Action.USE, reason=f"{decision.reason} ({begun.reason})")
        return replace(decision, action=Action.TUNE)

    def _loaded(self, context: CallContext, variant: Variant, decision: PolicyDecision) -> Binding:
        return self._bind(context, self._compiled(variant), decision)

    def _compiled(self, variant: Variant) -> Artifact:
        """Returns the artifact of a variant. Logs a line if it had to be compiled."""
        compilation = Compilation(session(), self._kernel.source)
        with working(f"compiling {variant.kernel} for {variant.target}") as task:
            artifact = compilation.artifact(variant)
        if compilation.compiled:
            config = f" ({variant.config})" if variant.config.as_dict() else ""
            announce(f"compiled {variant.kernel} for {variant.target} in {format_duration(task.seconds)}{config}")
        return artifact

    def _tuned(
        self,
        context: CallContext,
        launcher: Launcher | HeuristicLauncher,
        unmeasured: Origin,
    ) -> Config | None:
        return tune_live(
            self._kernel,
            context,
            self.problem(context),
            lambda config: self.variant(context, config),
            launcher,
            unmeasured,
        )

    def _bind(self, context: CallContext, artifact: Artifact, decision: PolicyDecision) -> Binding:
        loaded = load_code(context.device, stored_code(session().store, artifact))
        variant = artifact.variant
        return bind(
            cast("Any", loaded),
            artifact.launch,
            variant.signature,
            variant.specialization,
            {**variant.specialization.constant_values, **variant.config.as_dict()},
            grid=self._kernel.grid,
            facts=context.device.facts(),
            tag=Resolved(artifact, decision, self._kernel),
        )

    def _completed(self, args: tuple[object, ...], kwargs: Mapping[str, object]) -> dict[str, object]:
        launcher = self._unzeroed
        return launcher.complete(args, kwargs) if isinstance(launcher, HeuristicLauncher) else dict(kwargs)


def _kind_of_object(call: SeenCall, name: str) -> str:
    """Describes the kind of object that a call passed for a parameter."""
    kind = next((argument.kind for argument in call.arguments if argument.name == name), ValueKind.ABSENT)
    words = {
        ValueKind.ABSENT: "missing",
        ValueKind.POINTER: "an array",
        ValueKind.ADDRESS: "an address",
        ValueKind.NONE: "None",
        ValueKind.DESCRIPTOR: "a tensor descriptor",
    }
    return words.get(kind, "no scalar")
