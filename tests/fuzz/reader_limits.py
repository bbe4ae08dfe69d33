"""Manifests at the limits of docs/bundle-format.md, section 3.4: just within, and just beyond."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

__all__ = ["LIMITS"]

_Limit = Callable[[Any, Random], None]


def _near(random: Random, limit: int) -> int:
    return limit + random.choice((-1, 0, 0, 1, 1))


def _kernel(manifest: Any, random: Random) -> Any:
    return random.choice(manifest["kernels"]) if manifest["kernels"] else {"variants": [], "rules": [], "derived": []}


def _row(manifest: Any, table: str, random: Random, other: Any) -> Any:
    rows = manifest["tables"][table]
    if not rows:
        rows.append(other)
    return random.choice(rows)


def _config(manifest: Any, random: Random) -> Any:
    return _row(manifest, "configs", random, {"values": {}, "options": {}})


def _name(manifest: Any, random: Random) -> None:
    text = random.choice(("a", "ä", "\U0001f600")) * _near(random, 1024)
    kernel = _kernel(manifest, random)
    where = random.choice(("name", "kind", "config_names", "key", "derived"))
    kernel[where] = {
        "name": text,
        "kind": text,
        "config_names": [text],
        "key": [text],
        "derived": [[text, 1]],
    }[where]


def _text(manifest: Any, random: Random) -> None:
    text = random.choice(("a", "ä")) * _near(random, 1 << 16)
    if random.random() < 0.5:
        manifest["notes"]["text"] = text
    else:
        manifest["tables"]["reasons"].append(text)


def _tuples(manifest: Any, random: Random) -> None:
    value: Any = random.choice((1, None))
    for _ in range(_near(random, 64)):
        value = {"tuple": [value]}
    _config(manifest, random)["values"]["deep"] = value


def _expression(manifest: Any, random: Random) -> None:
    node: Any = random.choice((1, {"argument": "n"}, {"extent": ["x", 0]}))
    for _ in range(_near(random, 200)):
        node = random.choice((["neg", node], ["add", 1, node], ["select", 1, node, 2]))
    _kernel(manifest, random)["derived"] = [["D", node]]


def _parts(manifest: Any, random: Random) -> None:
    # A full tree of so many leaves has one part less than twice as many; the first leaf is made an operation or not.
    def tree(leaves: int) -> Any:
        return 1 if leaves == 1 else ["add", tree(leaves // 2), tree(leaves - leaves // 2)]

    node = tree(1 << 15)
    for _ in range(random.choice((0, 1, 2))):
        node = ["neg", node]
    _kernel(manifest, random)["derived"] = [["D", node]]


def _nesting(manifest: Any, random: Random) -> None:
    value: Any = 1
    for _ in range(_near(random, random.choice((255, 254, 20)))):
        value = [value] if random.random() < 0.7 else {"tuple": [value]}
    manifest["tables"]["reasons"].append(value) if random.random() < 0.7 else manifest.update(notes=value)


def _parameters(manifest: Any, random: Random) -> None:
    count = _near(random, 1024)
    manifest["tables"]["signatures"].append([{"name": f"p{i}", "kind": "any"} for i in range(count)])


def _members(manifest: Any, random: Random) -> None:
    names = {f"v{i:04}": i for i in range(_near(random, 4096))}
    if random.random() < 0.5:
        manifest["tables"]["configs"].append({"values": {}, "options": names})
    else:
        pairs = [[name, value] for name, value in names.items()]
        manifest["tables"]["specializations"].append({"facts": [], "constants": pairs})


def _slots(manifest: Any, random: Random) -> None:
    launch = _row(manifest, "launches", random, {})
    launch["layout"] = [["x", "ptr"]] * _near(random, 16 * 1024)


def _maps(manifest: Any, random: Random) -> None:
    one = {"name": "d", "swizzle": 0, "element_bytes": 2, "element_type": 0, "box": [1], "fp4_padded": False}
    launch = _row(manifest, "launches", random, {})
    most, far = (1 << 31) - 1, (1 << 40) - 1
    if random.random() < 0.5:
        launch["tensor_maps"] = [one] * _near(random, 1024)
        return
    name = random.choice(("swizzle", "element_bytes", "element_type", "box", "axes"))
    limits: dict[str, list[Any]] = {
        "swizzle": [15, 16, -1, True],
        "element_bytes": [0, 1, 3, 4, 8, 16],
        "element_type": [31, 32],
        "axes": [
            [0],
            [31],
            [32],
            [-1],
            [True],
            [],
            None,
            [0, 1],
            *([[a, b]] for a in (0, 1, most, most + 1) for b in (-1, 0, far, far + 1)),
        ],
        "box": [[1] * 5, [1] * 6, [], [1 << 20], [(1 << 20) + 1], [0], [True]],
    }
    launch["tensor_maps"] = [{**one, name: random.choice(limits[name])}]


def _launch(manifest: Any, random: Random) -> None:
    launch = _row(manifest, "launches", random, {})
    top, bytes_most = 1 << 31, 1 << 48
    name, values = random.choice(
        (
            ("threads", (top, top - 1, 0, -1, True)),
            ("num_warps", (top, top - 1, None)),
            ("shared_bytes", (top, top - 1)),
            ("registers", (top, top - 1, None, False)),
            ("spills", (top, top - 1, -1)),
            ("scratch_bytes", (bytes_most, bytes_most - 1)),
            ("profile_bytes", (bytes_most, bytes_most - 1)),
            ("scratch_align", (0, 3, 1 << 16, 1 << 17)),
            ("profile_align", (1, 1 << 16, (1 << 16) + 1)),
            ("cluster", ([1, 1, 1 << 16], [1, 1, (1 << 16) + 1], [0, 1, 1], [1, 1], [True, 1, 1])),
            ("block", ([16, 8, 1], [128, 1, 1], [1, 1, 128], [0, 0, 0], [1 << 31, 1, 1], [3, 3, 3], None)),
            ("cpu_chunk", (0, 1, top - 1, top, True, None)),
            ("cpu_threads", (5, -1, 1 << 64)),
            ("cpu_work", (0, 1 << 30, -1, 1 << 64)),
            ("num_stages", (1,)),
            ("entry", ("", " ", "\xad", "a" * 2000, 5)),
            ("tensor_maps", ([], None, {}, 0)),
            ("counts_blocks", (True, False, 1, None)),
            ("loader", ("{}", "", "\xad", None, {}, 1)),
            ("cooperative", (1, 0, None, True, False)),
        )
    )
    launch[name] = random.choice(values)
    if name == "block" and random.random() < 0.5:
        launch["threads"] = random.choice((128, 27, 1))


def _list(manifest: Any, random: Random) -> None:
    kernel = _kernel(manifest, random)
    config: Any = {"options": {}, "values": {"BLOCK": 1}}
    bound = [
        random.choice((*kernel.get("key", []), "n", "zz")),
        None,
        random.choice((5, (1 << 63) - 1, 1 << 63, 0, -1)),
    ]
    steps = [[[bound] * _near(random, random.choice((1, 64))), config], [[], config]]
    for rules in kernel["rules"]:
        rules["rules"]["unseen"] = random.choice((steps, steps, steps[:1], steps[1:], [], [*steps, steps[1]]))


def _sidecars(manifest: Any, random: Random) -> None:
    for variant in _kernel(manifest, random)["variants"]:
        variant["sidecars"] = [0] * _near(random, 16)


def _axes(manifest: Any, random: Random) -> None:
    count, wide = _near(random, 32), (1 << 63) + random.choice((-1, 0))
    shape = [random.choice((0, 1, wide, -1 if random.random() < 0.1 else 2)) for _ in range(count)]
    row: Any = {"shape": shape}
    if random.random() < 0.5:
        row["strides"] = [random.choice((1, -(1 << 63), (1 << 63) - 1)) for _ in shape]
    extents = [[name, row] for name in random.choice((("x",), ("out", "x"), ("x", "out"), ("x", "x"), ("nobody",), ()))]
    found = _row(manifest, "specializations", random, {"facts": [], "constants": []})
    found["extents"] = extents
    if random.random() < 0.3:
        found["grid"] = random.choice(([1, 1, 1], [0, 0, wide], [1, 1], [1, 1, 1, 1], [1, True, 1], None))


def _digits(manifest: Any, random: Random) -> None:
    digits = random.choice(("-", "")) + "9" * _near(random, 4300)
    _config(manifest, random)["values"]["big"] = {"int": digits}


def _constants(manifest: Any, random: Random) -> None:
    """Constants that are sorted, or almost, by name and then by class and size."""
    values: list[Any] = [
        *(0, 1, -1, True, False, 1 << 53, (1 << 53) + 1, (1 << 63) - 1, "a", "b", None, "ä", '"'),
        *({"float": "0x1.0000000000000p+0"}, {"float": "-0x0.0p+0"}, {"float": "0x0.0p+0"}, {"float": "nan"}),
        *({"float": "inf"}, {"int": str(1 << 63)}, {"int": str((1 << 63) + 1)}, {"int": str((1 << 1024) - (1 << 970))}),
        *({"int": str((1 << 1024) - (1 << 970) - 1)}, {"dtype": "int8"}, {"dtype": "float32"}, {"tuple": [2]}),
        *({"tuple": []}, {"function": ["f", "a"]}, {"function": ["f", "b"]}),
    ]
    pairs = [[random.choice("ab"), random.choice(values)] for _ in range(random.choice((1, 2, 2, 3)))]
    pairs.sort(key=lambda pair: pair[0])
    facts = [[random.choice("ab"), random.choice(("aligned16", "equal1", "none", "range32", "x"))] for _ in range(2)]
    facts.sort(key=lambda pair: pair[0])
    manifest["tables"]["specializations"].append({"facts": facts, "constants": pairs})


def _buckets(manifest: Any, random: Random) -> None:
    """A dispatch table, sorted or almost."""
    values: list[Any] = [0, 1, 10, 2, -1, True, None, "a", "B", {"float": "nan"}, {"int": str(1 << 70)}, 1 << 63]
    config = {"options": {}, "values": {}}
    for rules in _kernel(manifest, random)["rules"]:
        width = len(rules["rules"]["key"])
        table = [[[random.choice(values) for _ in range(width)], config] for _ in range(random.choice((1, 2, 2, 3)))]
        rules["rules"]["rules"] = table


def _rules(manifest: Any, random: Random) -> None:
    """Two sets of rules for almost the same."""
    kernel = _kernel(manifest, random)
    signatures = manifest["tables"]["signatures"]
    if not kernel["rules"] or not signatures:
        return
    rules = dict(random.choice(kernel["rules"]))
    for default in random.sample((1, True, {"float": "0x1.0000000000000p+0"}, None), 2):
        signatures.append([{"name": "n", "kind": "integer", "default": [default]}])
        kernel["rules"].append({**rules, "signature": len(signatures) - random.choice((1, 1, 2))})


def _variants(manifest: Any, random: Random) -> None:
    """A variant again, in a row of its own or not."""
    variants = _kernel(manifest, random)["variants"]
    if variants:
        again = dict(random.choice(variants))
        name = random.choice(("config", "compiler", "job", "reason", "basis", "blob", "launch", "target", "x"))
        again[name] = random.choice((0, 1, True, -1, "x", "measured", again.get(name)))
        variants.insert(random.randrange(len(variants) + 1), again)


def _names(manifest: Any, random: Random) -> None:
    """Kernels in another order, or of one name."""
    kernels = manifest["kernels"]
    if kernels:
        again = dict(random.choice(kernels))
        again["name"] += random.choice(("", "a", "\U0001f600", "\uffe0"))
        kernels.append(again)
        if random.random() < 0.5:
            kernels.sort(key=lambda kernel: kernel["name"])


LIMITS: tuple[_Limit, ...] = (
    *(_name, _tuples, _expression, _nesting, _maps, _list, _sidecars, _axes, _digits) * 6,
    *(_launch, _constants, _buckets, _rules, _variants, _names) * 12,
    *(_text, _parameters, _members, _slots, _parts),
)
