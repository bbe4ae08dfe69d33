"""Loops, branches and early returns, and what they carry."""

from __future__ import annotations

from collections.abc import Callable

from .maker import HOME, Maker
from .memory import _checked, _loaded, _pointer, _storage, as_stored, kept_as
from .program import Node, Var

__all__ = ["branch", "early_return", "for_loop", "pointer_loop", "while_loop"]

Body = Callable[[Maker], None]


def _home(m: Maker, var: Var) -> Var:
    return m.squash(var) if m.exact and var.floating else var


def _carried(m: Maker, count: int) -> list[Var]:
    """Values that a loop changes, defined before it, each with a name of its own."""
    found: list[Var] = []
    for _ in range(count):
        var = m.any(tile=not m.chance(0.3))
        if found and m.chance(0.6):  # of one type with another, so that they can change places
            var = m.fresh(found[0].kind, found[0].shape)
        start = _home(m, var)
        name = m.name("c")
        carried = Var(name, var.kind, var.shape, HOME[var.kind] if m.exact and var.floating else None)
        m.put_node(Node([f"{name} = {_apart(start)}"], (carried,)))
        found.append(carried)
    return found


def _apart(var: Var) -> str:
    """``var`` as a value of its own to Triton's front end, and the same one again after its first pass (MLIR folds it).

    The front end does not carry a value through a loop or a branch whose new value is, at the first pass, the very one
    that it has: where ``a`` and ``b`` start as one value, ``a, b = c, a`` leaves ``b`` as it was. So every carried
    value starts as one of its own, and so does every value that it becomes.
    """
    return f"{var.name} * 1.0" if var.floating else f"{var.name} + 0"


def _step(m: Maker, carried: list[Var]) -> None:
    """The new values, at the end of a loop's body; sometimes several at once, so that one reads another's old value."""
    new: list[tuple[str, str]] = []
    for var in carried:
        if m.chance(0.1):
            continue
        if not var.floating and m.chance(0.2):
            new.append((var.name, f"{var.name} + {m.rng.choice([1, 3, 16])}"))  # a uniform step
            continue
        others = [other for other in carried if other is not var and (other.kind, other.shape) == (var.kind, var.shape)]
        if others and m.chance(0.4):
            new.append((var.name, _apart(m.rng.choice(others))))
            continue
        new.append((var.name, _apart(_home(m, m.value(var.kind, var.shape)))))
    if len(new) > 1 and m.chance(0.5):
        m.put(", ".join(name for name, _ in new) + " = " + ", ".join(text for _, text in new))
    else:
        for name, text in new:
            m.put(f"{name} = {text}")


def for_loop(m: Maker, body: Body) -> None:
    """``for`` over a constant, an argument or a computed number of steps."""
    m.feature("for")
    carried = _carried(m, m.rng.randrange(1, 5))
    trips = m.rng.choice([0, 1, 2, 3, 3, 4])
    start, step = m.rng.choice([(0, 1), (0, 1), (0, 1), (2, 1), (0, 3), (5, 2)])
    end = start + trips * step - (step - 1 if trips and m.chance(0.3) else 0)
    form = m.rng.choice(["range", "range", "tl.range", "tl.static_range"])
    if form == "tl.static_range" and trips > 3:
        form = "range"
    bounds = (
        [str(start), str(end), str(step)] if form == "tl.static_range" else [m.scalar(start), m.scalar(end), str(step)]
    )
    counter = Var(m.name("k"), "i32", (), interval=(min(start, end), max(end, start)))
    text = f"{bounds[1]}" if (start, step) == (0, 1) else f"{bounds[0]}, {bounds[1]}, {bounds[2]}"
    plain = m.name("i")
    with m.block(f"for {plain} in {form}({text}):"):
        # Under the interpreter, and of a static range, what is counted is a Python number: make a value of it.
        m.put_node(Node([f"{counter.name} = {plain} + 0 * pid"], (counter,)))
        body(m)
        _step(m, carried)


def while_loop(m: Maker, body: Body) -> None:
    """``while`` with a counter, sometimes with a condition on the data as well."""
    m.feature("while")
    carried = _carried(m, m.rng.randrange(3))
    most = m.rng.choice([1, 2, 3, 5])
    counter = Var(m.name("k"), "i32", (), interval=(0, most))
    m.put(f"{counter.name} = {m.scalar(0)} + 0 * pid")
    m.out[-1].fixed = True
    condition = f"{counter.name} < {m.scalar(most)}"
    whole = m.pick(lambda var: var.shape == () and var.name.startswith("c") and not (var.floating and m.rounded))
    if whole is not None and m.chance(0.4):
        condition = f"({condition}) & ({whole.name} != {m.literal(whole.kind)})"
    with m.block(f"while {condition}:"):
        m.scope.append(counter)
        body(m)
        _step(m, carried)
        m.out.append(Node([f"{counter.name} += 1"], fixed=True))


def pointer_loop(m: Maker, body: Body) -> None:
    """A loop that carries pointers, as a matmul does."""
    m.feature("for", "carried pointer")
    shape = m.shape(1)
    extent = shape[0]
    if f"r{extent}" not in {var.name for var in m.scope}:
        return
    parameter, storage = _pointer(m, written=m.chance(0.3))
    trips, step = m.rng.choice([1, 2, 4]), m.rng.choice([1, 2, extent, -1])
    pointer = m.name("q")
    per_element = m.chance(0.2)
    carried = _carried(m, m.rng.randrange(2))
    m.put(f"{pointer} = {parameter.name} + r{extent}")
    last = (trips - 1) * step
    span = extent - 1
    with m.block(f"for {m.name('k')} in range({m.scalar(trips)}):"):
        low, high = min(0, last), max(0, last) + span
        if per_element:
            low, high = 0, span * trips
        _checked(m, parameter, storage, _place(low, high))
        _loaded(m, parameter, storage, f"tl.load({pointer})", shape)
        body(m)
        if storage.written and m.chance(0.5):
            m.put(f"tl.store({pointer}, {as_stored(m, parameter, storage, m.value(kept_as(parameter), shape))})")
        _step(m, carried)
        m.put(f"{pointer} += " + (f"r{extent}" if per_element else m.scalar(step)))


def _place(low: int, high: int) -> object:
    from .memory import Place

    return Place("", None, low, high)


def branch(m: Maker, body: Body) -> None:
    """``if`` on a scalar of the data, an argument or the program's number; with or without ``else``."""
    m.feature("if")
    results = _carried(m, m.rng.randrange(3))
    condition = _condition(m)
    with m.block(f"if {condition}:", otherwise=m.chance(0.5)) as node:
        body(m)
        _step(m, results)
    if node.otherwise is not None:
        with m.inside(node.otherwise):
            body(m)
            _step(m, results)


def _condition(m: Maker) -> str:
    whole = m.pick(lambda var: var.shape == () and not (var.floating and (m.rounded or m.chance(0.3))))
    if whole is None or m.chance(0.3):
        var = m.any(floating=False)
        whole = m.define(f"tl.max({var.name}).to({m.tl(var.kind)})", var.kind, ())  # which promotes narrow integers
    if whole.kind == "i1":
        return whole.name
    return f"{whole.name} {m.rng.choice(['<', '>', '!=', '>='])} {m.literal(whole.kind)}"


def early_return(m: Maker) -> None:
    """``if ...: return`` with what was shown so far."""
    if m.depth:
        return
    m.feature("early return")
    kind = m.kind()
    shape = m.shape()
    storage = _storage(m, kind, written=True)
    pointer = next(p for p in m.parameters if p.storage == storage.name)
    value = _home(m, m.value(kind, shape))
    with m.block(f"if {_condition(m)}:"):
        if m.chance(0.6):
            count = value.elements
            flat = f"tl.arange(0, {count})" if len(shape) == 1 else f"tl.reshape(tl.arange(0, {count}), {shape})"
            storage.reach(0, count - 1 + pointer.shift)
            m.put(f"tl.store({pointer.name} + {flat}, {value.name})")
        m.out.append(Node(["return"]))
