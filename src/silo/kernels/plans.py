"""``silo.plan`` and ``silo.planning``: recorded launches that are replayed as one, with other arguments."""

from __future__ import annotations

import inspect
import logging
import operator
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Self

from silo.errors import ArgumentError
from silo.forks import Mutex
from silo.launch import native
from silo.launch.hooks import want_each_launch
from silo.launch.plan_forms import FormMaker, SeenLaunch, address_of, seen_launches
from silo.launch.plan_streams import refuse_capture
from silo.launch.plan_torch import Pool, TorchWork, offsets_of_generators, pool_handle, torch_work
from silo.launch.plan_tracers import TracedArray, Trail, is_of_torch, stand_in_for

__all__ = ["Plan", "PlanForm", "PlanReport", "names_of_arguments", "plan", "planning"]


@dataclass(frozen=True, slots=True)
class PlanForm:
    """One recorded sequence of launches of a plan: how many launches it has, what changes, and how it is replayed.

    ``updates`` is the number of parameters that differ from replay to replay, and ``grids`` the number of grids that
    do. ``streams`` is the number of streams of a GPU that the launches were recorded on. ``us`` is the mean time of a
    replay in microseconds, from reading the arguments to the end of the launch (on a GPU: until it is enqueued); None
    before the first replay. ``way`` names the mechanism that replays the launches, and ``reason`` is the reason for
    this choice.
    """

    launches: int
    updates: int
    grids: int
    streams: int
    replays: int
    us: float | None
    way: str
    reason: str


@dataclass(frozen=True, slots=True)
class PlanReport:
    """The history of a plan: its forms, its replays, how often it was recorded, and what its replays assume.

    ``fixed`` has the arguments whose value, or shape and strides, must be the recorded ones, each with the use that
    could not be traced. ``memory`` has the arguments that must be the recorded arrays, because captured work of torch
    uses their memory, each with the operation. ``tensors`` describes the other tensors of that work, each with an
    operation; ``arrays`` describes arrays that kernels take and that are not arguments of the plan, each with a kernel.
    All replays use these tensors and arrays, and the plan keeps them alive. ``temporaries`` is the number of bytes that
    torch's work allocates in each replay, in a pool of the plan's own, or in ``pool``, which other plans may share.
    """

    name: str
    forms: tuple[PlanForm, ...]
    replays: int
    recordings: int
    kernels: tuple[str, ...]
    fixed: Mapping[str, str]
    memory: Mapping[str, str]
    tensors: Mapping[str, str]
    arrays: Mapping[str, str]
    temporaries: int
    pool: Pool | None

    def __str__(self) -> str:
        lines = [f"plan {self.name}: {self.replays} replays, {self.recordings} recordings"]
        for form in self.forms:
            took = "not replayed" if form.us is None else f"{form.replays} replays of {form.us:.1f} us"
            beside = f" on {form.streams} streams" if form.streams > 1 else ""
            lines.append(
                f"  {form.launches} launches{beside}, {form.updates} parameters and {form.grids} grids change; {took};"
                f" {form.way}: {form.reason}"
            )
        lines += [f"  {name} is the same in each form: used by {use}" for name, use in self.fixed.items()]
        lines += [f"  {name} is the array that was recorded: {use} is captured" for name, use in self.memory.items()]
        lines += [f"  a tensor stays: {text}, used by {use}" for text, use in self.tensors.items()]
        lines += [f"  an array stays: {text}, given to {use}" for text, use in self.arrays.items()]
        if self.temporaries:
            whose = f"the pool {self.pool}, which other plans may use" if self.pool else "a pool of its own"
            lines.append(f"  {self.temporaries:,} bytes of temporaries lie in {whose}")
        return "\n".join(lines)


class Plan(native.LaunchPlan):
    """Recorded launches that are called with other arguments in place of the recorded ones.

    A call of the plan passes every argument of the recorded function, by position or name. One native call reads the
    arguments, checks that the recorded code serves them, evaluates the grids, fills in the parameters and launches
    everything. If the recorded code does not serve the arguments (because of another alignment or dtype, or a size for
    which other code is used), the function runs once more, and its launches are recorded as another form.

    The call returns what the function returned, if this is an argument of the call, an array that every replay uses
    (memory that the function made with ``torch.empty``: the next replay writes to it again) or a tuple of these; else
    None.
    """

    def __new__(
        cls,
        name: str,
        names: tuple[str, ...],
        function: Callable[[tuple[Any, ...]], object] | None = None,
        pool: Pool | None = None,
    ) -> Self:
        """Makes a plan without recorded launches. ``function`` takes the tuple of all arguments.

        ``function`` is None for a plan of a ``with`` block (:func:`planning`), because a block cannot be run again.
        ``pool`` is torch's handle of the memory pool for the function's work; None: the plan has a pool for itself.
        """
        plan = super().__new__(cls, name, names)
        plan._name = name
        plan._function = function
        plan._lock = Mutex()
        plan._recordings = 0
        plan._kernels = ()
        plan._fixed = {}
        plan._memory = {}
        plan._tensors = {}
        plan._arrays = {}
        plan._temporaries = 0
        plan._pool = pool
        plan._logged = False
        plan._full = False
        return plan

    _name: str
    _function: Callable[[tuple[Any, ...]], object] | None
    _lock: Mutex
    _recordings: int
    _kernels: tuple[str, ...]
    _fixed: dict[str, str]
    _memory: dict[str, tuple[str, set[int]]]
    _tensors: dict[str, str]
    _arrays: dict[str, str]
    _temporaries: int
    _pool: Pool | None
    _logged: bool
    _full: bool

    @property
    def launch_parts(self) -> tuple[str, ...]:
        """The kernels of the latest recorded form, in order; captured work of torch is called ``torch.NAME``.

        A form is one recorded sequence of launches.
        """
        return self._kernels

    def report(self) -> PlanReport:
        """Returns the history of the plan so far."""
        forms = tuple(
            PlanForm(launches, moves, grids, streams, replays, spent / replays / 1000 if replays else None, way, reason)
            for launches, moves, grids, streams, _, _, replays, spent, way, reason in self.forms()
        )
        memory = {name: use for name, (use, _) in self._memory.items()}
        numbers = (self.replays, self._recordings)
        memory_history = (dict(self._tensors), dict(self._arrays), self._temporaries, self._pool)
        return PlanReport(self._name, forms, *numbers, self._kernels, dict(self._fixed), memory, *memory_history)

    def explain(self) -> str:
        """Returns the report as text: the recorded forms, how each is replayed and why, and what replays assume."""
        return str(self.report())

    def __repr__(self) -> str:
        return f"<silo.Plan {self._name}({', '.join(self.names)}) of {len(self._kernels)} launches>"

    def _miss(self, arguments: tuple[Any, ...]) -> object:
        """Serves a call that none of the plan's recorded forms serves, by running the function."""
        if want_each_launch():
            if self._function is None:
                raise ArgumentError(
                    f"{self._name}: a hook of silo.on_launch(..., each=True) sees every launch by itself, and a block"
                    " cannot be run again: make the plan of a function, silo.plan(function, ...), or remove the hook"
                )
            return self._function(arguments)
        if self._function is None:
            self._refuse_other_memory(arguments)
            raise ArgumentError(
                f"{self._name}: the recorded launches do not serve these arguments (another dtype, device, shape, size"
                " or alignment), and a block cannot be run again: make the plan of a function, silo.plan(function, ...)"
            )
        # while another plan is recorded, that plan records the launches of this function
        if self._full or native.recording() is not None:
            return self._function(arguments)
        self._refuse_other_memory(arguments)
        if self._recordings:
            self._log_once()
        return self.learn(arguments)

    def _refuse_other_memory(self, arguments: tuple[Any, ...]) -> None:
        for name, (use, addresses) in self._memory.items():
            argument = arguments[self.names.index(name)]
            if address_of(argument) not in addresses:
                raise ArgumentError(
                    f"{self._name}: {name} cannot be another array than the recorded one: {use}, which torch does"
                    " between the launches, was captured and uses its memory. Copy the new values into that array, or"
                    " make a plan for the launches before and one for those after"
                )

    def _log_once(self) -> None:
        with self._lock:
            logged, self._logged = self._logged, True
        if not logged:
            held_arguments = "".join(f"; {name} is held: {use}" for name, use in self._fixed.items())
            logging.getLogger("silo").info(
                "plan %s: arguments that no recorded form serves; the function runs and is recorded again%s",
                self._name,
                held_arguments,
            )

    def learn(self, arguments: tuple[Any, ...]) -> object:
        """Runs the function with arguments, records its launches, and returns its result.

        Raises:
            ArgumentError: the function's launches cannot be recorded as a plan. Nevertheless the function ran and its
                launches were made, unless the stream is being captured.
        """
        function = self._function
        if function is None:
            raise ArgumentError(f"{self._name}: a block cannot be run again")
        refuse_capture(self._name, arguments)
        drawn = offsets_of_generators()
        result = function(arguments)  # this run compiles and tunes the kernels
        drawn = offsets_of_generators() != drawn
        with self._lock:
            self._recordings += 1
        arguments_by_name = dict(zip(self.names, map(_plain_number, arguments), strict=True))
        first: list[Any] = []
        try:
            with torch_work(self._name, first, pool=self._pool) as work, _recording(first, dry=True):
                again = function(arguments)
        except TypeError as error:
            if isinstance(error, ArgumentError):
                raise
            raise ArgumentError(f"{self._name} cannot be a plan: {error}") from error
        launches = seen_launches(first)
        second, trail, torch_again = _follow(self._name, function, arguments_by_name, first, self._pool)
        work.compare(torch_again)
        if drawn:
            work.refuse_random()
        self.keep(arguments_by_name, launches, second, trail, (work, torch_again), again)
        return result

    def keep(
        self,
        named: Mapping[str, object],
        first: list[SeenLaunch],
        second: list[SeenLaunch],
        trail: Trail,
        work: tuple[TorchWork, TorchWork],
        result: object = None,
    ) -> None:
        """Adds a form (a replayable sequence of launches) to the plan, derived from two recordings of one call."""
        if not first:
            raise ArgumentError(
                f"{self._name}: nothing was launched that a plan records: kernels of Silo, and of unchanged programs"
                " under silo.accelerate()"
            )
        maker = FormMaker(self._name, named, first, second, trail, *work, result)
        added = self.add(maker.describe())
        if not added:
            logging.getLogger("silo").warning(
                "plan %s: it has %d forms, and keeps no more; arguments of others are launched one by one",
                self._name,
                len(self.forms()),
            )
        with self._lock:
            self._full = not added
            self._kernels = maker.parts
            self._fixed.update(trail.used)
            for name, (use, address) in maker.tied.items():
                self._memory.setdefault(name, (use, set()))[1].add(address)
            self._tensors.update(maker.tensors)
            self._arrays.update(maker.held)
            self._temporaries += sum(work[0].temporaries.values())


def _plain_number(value: Any) -> Any:  # noqa: ANN401  # whatever a call gives
    """Converts integers and floats of other libraries to Python's."""
    if type(value) in (int, float, bool, str, type(None)) or hasattr(value, "shape"):
        kind = getattr(value, "dtype", None)
        if kind is None or getattr(value, "shape", None) != () or not hasattr(value, "__index__"):
            return value
        try:
            return operator.index(value)
        except TypeError:
            return value
    return value


@contextmanager
def _recording(launches: list[Any], bindings: list[Any] | None = None, *, dry: bool = False) -> Generator[None]:
    native.record(launches, dry, bindings)
    try:
        yield
    finally:
        native.record_end()


def _follow(
    name: str,
    function: Callable[[tuple[Any, ...]], object],
    named: Mapping[str, object],
    first: list[Any],
    pool: Pool | None,
) -> tuple[list[SeenLaunch], Trail, TorchWork]:
    """Runs the function a second time and records its launches, with a tracer in place of each argument.

    If the function fails with tracers, it is run again with torch's tensors themselves, and then with the numbers too.
    """
    failure: Exception | None = None
    for follow_arrays, follow_numbers in ((True, True), (False, True), (False, False)):
        trail = Trail()
        arguments: list[Any] = []
        for parameter, value in named.items():
            tracer = stand_in_for(parameter, value, trail)
            # If the function failed with tracers, its second and third run get real tensors, and torch reports its work
            # on them. Other arrays always need a tracer.
            followed = follow_arrays or not is_of_torch(value) if isinstance(tracer, TracedArray) else follow_numbers
            arguments.append(tracer if followed else value)
            if tracer is not value and not followed:
                trail.used[parameter] = f"a function that takes no stand-ins: {failure}"
        launches: list[Any] = []
        try:
            with torch_work(name, launches, pool=pool) as work, _recording(launches, first, dry=True):
                function(tuple(arguments))
        except ArgumentError:
            raise
        except Exception as error:  # noqa: BLE001  # whatever a program raises of an object that it does not know
            failure = error
            continue
        # The function made other launches than with the real values, because it can distinguish tracers from them, for
        # example by isinstance().
        if len(launches) != len(first) and follow_numbers:
            failure = TypeError("it makes other launches with them")
            continue
        return seen_launches(launches), trail, work
    raise ArgumentError(
        f"{name}: the function failed when it ran the second time, as a plan has it do: {failure}"
    ) from failure


def plan(function: Callable[..., object], *examples: object, pool: object = None, **named: object) -> Plan:
    """Runs ``function`` on examples, records its launches, and returns a plan that replays them with other arguments.

    The function runs with the examples themselves, once more to record it, and then with tracers in their place, to
    determine how each parameter and grid depends on the arguments; only the first of these runs launches anything. A
    replay accepts other arrays with the same dtype and device, and other integers and floats. An argument whose value,
    or whose shape, is used in a way that cannot be traced (as an index, by ``range``, by torch) is held: for another
    value the function runs and is recorded anew.

    Args:
        function: launches kernels of Silo, or unchanged Triton kernels under ``silo.accelerate()``. Work of torch on an
            NVIDIA GPU is captured between the launches; other work of torch or numpy on arrays is refused. Launches may
            be on several streams that torch's events order.
        examples: its arguments by position.
        pool: the pool from which the tensors that the function makes get their memory, as in ``torch.cuda.graph``:
            ``torch.cuda.graph_pool_handle()``, a ``torch.cuda.CUDAGraph`` or a ``torch.cuda.MemPool``. Plans that share
            a pool use the same memory, so their replays must follow each other: on one stream, or ordered by events.
        named: its arguments by name.

    Raises:
        ArgumentError: its launches depend on more than its arguments, or cannot be recorded; ``pool`` is no pool, or is
            also the name of an argument that is not passed by position.

    >>> import numpy, silo, triton, triton.language as tl
    >>> @silo.kernel
    ... @triton.jit
    ... def double(x, out, n, BLOCK: tl.constexpr):
    ...     at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    ...     tl.store(out + at, 2 * tl.load(x + at, mask=at < n), mask=at < n)
    >>> def quadruple(x, between, out, n):
    ...     grid = (silo.cdiv(n, 128),)
    ...     double[grid](x, between, n, BLOCK=128)
    ...     double[grid](between, out, n, BLOCK=128)
    >>> x, between, out = (numpy.ones(1000, "float32") for _ in range(3))
    >>> replay = silo.plan(quadruple, x, between, out, 1000)
    >>> x, between, out = (numpy.ones(3000, "float32") for _ in range(3))
    >>> replay(x, between, out, 3000)
    >>> float(out.sum())
    12000.0
    """
    if not callable(function):
        raise ArgumentError(f"silo.plan takes a function and its arguments, not {function!r}")
    if native.recording() is not None:
        raise ArgumentError("a plan is being recorded in this thread: make the inner plan before it")
    positional = names_of_arguments(function, len(examples), named)
    if pool is not None and "pool" not in positional and _has_parameter(function, "pool"):
        raise ArgumentError(
            "silo.plan: pool= is the pool of memory of the plan, and the function has an argument of this name: give"
            " that one by position"
        )
    keywords = tuple(named)

    def run(arguments: tuple[Any, ...]) -> object:
        count = len(positional)
        return function(*arguments[:count], **dict(zip(keywords, arguments[count:], strict=True)))

    new_plan = Plan(getattr(function, "__name__", "plan"), (*positional, *keywords), run, pool_handle(pool))
    new_plan.learn((*examples, *named.values()))
    return new_plan


def _has_parameter(function: Callable[..., object], name: str) -> bool:
    try:
        return name in inspect.signature(function).parameters
    except (TypeError, ValueError):  # callables written in C may lack a signature
        return False


def names_of_arguments(function: Callable[..., object], count: int, named: Mapping[str, object]) -> tuple[str, ...]:
    """Returns the names of the arguments that are passed by position."""
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):  # callables written in C may lack a signature
        parameters = []
    plain = [
        parameter.name
        for parameter in parameters
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
    ]
    names = tuple(plain[:count]) + tuple(f"argument_{index + 1}" for index in range(len(plain), count))
    if twice := [name for name in names if name in named]:
        raise ArgumentError(f"silo.plan: argument {twice[0]!r} is given twice, by position and by name")
    return names


@contextmanager
def planning(*, pool: object = None, **arguments: object) -> Generator[Plan]:
    """Records the launches of a block, which are made as usual; the plan replays them after the block.

    Args:
        pool: the memory pool for the tensors that the block makes, as for :func:`plan`.
        arguments: arrays that calls of the plan replace, by the names that calls use. Calls pass others of the same
            dtype, device, shape and strides. Everything else stays as it was recorded, because a block does not show
            how numbers depend on each other: if sizes and grids change, use :func:`plan`.

    Raises:
        ArgumentError: a launch cannot be recorded.

    >>> import numpy, silo, triton, triton.language as tl
    >>> @silo.kernel
    ... @triton.jit
    ... def double(x, out, n, BLOCK: tl.constexpr):
    ...     at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    ...     tl.store(out + at, 2 * tl.load(x + at, mask=at < n), mask=at < n)
    >>> x, out = numpy.ones(1000, "float32"), numpy.zeros(1000, "float32")
    >>> with silo.planning(x=x) as replay:
    ...     double[(8,)](x, out, 1000, BLOCK=128)
    >>> replay(x=numpy.full(1000, 5, "float32"))
    >>> float(out.sum())
    10000.0
    """
    if native.recording() is not None:
        raise ArgumentError("a plan is being recorded in this thread: make the inner plan before it")
    shared = pool_handle(pool)
    refuse_capture("planning", arguments.values())
    plan = Plan("planning", tuple(arguments), pool=shared)
    launches: list[Any] = []
    with torch_work("planning", launches, run=True, pool=shared) as work, _recording(launches):
        yield plan
    launches_seen = seen_launches(launches)
    trail = Trail()
    for name in arguments:
        trail.used[name] = "a block, which is not followed"
    plan.keep(
        {name: _plain_number(value) for name, value in arguments.items()},
        launches_seen,
        launches_seen,
        trail,
        (work, work),
    )
