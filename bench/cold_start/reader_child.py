"""One fresh process: ``reader_child.py python|c BUNDLE DRIVER FACTS READER``; prints nanoseconds of each step."""

import ctypes
import json
import mmap
import sys
import time
from pathlib import Path
from typing import Any, cast

from bench.cold_start.child import SIZE, make_context
from silo import Buffer, load
from silo.launch import native


class Given(ctypes.Structure):
    """One argument, as ``struct reader_given`` has it."""

    _fields_ = (
        ("kind", ctypes.c_int32),
        ("element", ctypes.c_int32),
        ("flags", ctypes.c_int32),
        ("number", ctypes.c_int64),
    )


class Chosen(ctypes.Structure):
    """``struct reader_chosen``."""

    _fields_ = (
        ("number", ctypes.c_uint32),
        ("instructions", ctypes.c_int32),
        ("program", ctypes.c_void_p),
        ("code", ctypes.c_void_p),
        ("bytes", ctypes.c_uint64),
    )


class InC:
    """A bundle whose kernel is chosen for in C; the rest of a launch is Python's."""

    def __init__(self, library, path, facts):
        with Path(path).open("rb") as file:
            self._data = mmap.mmap(file.fileno(), 0, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_WRITE)
        self._library, self._facts, self._error = library, facts, ctypes.create_string_buffer(2048)
        start = ctypes.addressof(ctypes.c_char.from_buffer(self._data))
        self._reader = ctypes.c_void_p(
            library.reader_open(ctypes.c_void_p(start), ctypes.c_size_t(len(self._data)), self._error)
        )

    def launcher(self):
        """What calls go through."""
        from silo.launch.runtime import Launcher, _take_settings

        _take_settings()
        plan = tuple((name, *numbers, tuple(default)) for name, *numbers, default in self._facts["plan"])
        return Launcher(self._facts["name"], plan, tuple(self._facts["options"]), self._miss, None, release_gil=True)

    def _miss(self, raw, arguments, _options, place, _grid):
        from silo.api.machine.device_plugins import device_for
        from silo.launch.native import Binding
        from silo.launch.runtime import connect_loaded

        connect_loaded()
        device = device_for(self._facts["name"], place, lambda _: True)
        given = (Given * len(raw))()
        for one, (kind, code, bits, flags, _, _), value in zip(given, raw, arguments, strict=True):
            one.kind, one.element, one.flags = kind, code << 8 | bits, flags
            one.number = value if isinstance(value, int) else 0
        chosen, target = Chosen(), str(device.target).encode()
        if self._library.reader_choose(self._reader, given, target, ctypes.byref(chosen), self._error):
            raise SystemExit(f"no choice: {self._error.raw}")
        if chosen.number != self._facts["number"]:
            raise SystemExit(f"variant {chosen.number} was chosen where Python chooses {self._facts['number']}")
        tag = self._tag()
        code = ctypes.string_at(chosen.code, chosen.bytes)
        launch = tag.artifact.launch
        loaded = device.load(launch, code, "cubin", self._facts["name"])
        variant = tag.artifact.variant
        slots = {name: index for index, name in enumerate(variant.signature.names)}
        layout = tuple((slots.get(slot.name, 0), slot.type.value, slot.name == "out") for slot in launch.layout)
        effects = {one.name: one.effect.value for one in variant.signature.parameters}
        program = ctypes.string_at(chosen.program, 16 * chosen.instructions)
        return Binding(cast("Any", loaded), layout, variant.config.as_dict(), (program,), tag=tag, effects=effects)

    def _tag(self):
        """The values behind a binding: callers may ask for them."""
        from silo.artifacts.artifact import Artifact, BlobRef
        from silo.bundle.contents import BundleVariant
        from silo.core.config import Config
        from silo.core.launch_info import LaunchInfo
        from silo.core.signature import Signature
        from silo.core.specialization import Specialization
        from silo.core.target import Target
        from silo.core.variant import Variant

        facts = self._facts
        Signature.from_json(facts["head"])
        variant = Variant(
            facts["name"],
            "",
            Signature.from_json(facts["signature"]),
            Specialization.from_json(facts["specialization"]),
            Config.from_json(facts["config"]),
            Target.parse(facts["target"]),
        )
        launch = LaunchInfo.from_json(facts["launch"])
        return BundleVariant(Artifact(variant, launch, BlobRef("0" * 64, "cubin", 0), (), "", ""), "")


def main():
    way, path, driver, facts, reader = sys.argv[1:]
    with Path(facts).open(encoding="utf-8") as file:
        known = json.load(file)
    library = ctypes.CDLL(reader)
    library.reader_open.restype = ctypes.c_void_p
    make_context(ctypes.CDLL(driver))
    marks = []

    def mark():
        marks.append((time.perf_counter_ns(), time.process_time_ns()))

    mark()
    x, y, out = (Buffer((SIZE,), "float32", device="cuda") for _ in range(3))
    mark()
    if way == "python":
        kernels = load(path)
        mark()
        kernels[next(iter(kernels))](x, y, out, SIZE)
    else:
        opened = InC(library, path, known)
        mark()
        opened.launcher()(x, y, out, SIZE)
    native.gpu_synchronize("cuda", 0)
    mark()
    names = ("arguments", "open", "launch")
    pairs = {name: (before, after) for name, before, after in zip(names, marks, marks[1:], strict=False)}
    pairs["first launch"] = (marks[0], marks[-1])
    steps = {
        name: {"wall": after[0] - before[0], "cpu": after[1] - before[1]} for name, (before, after) in pairs.items()
    }
    print(json.dumps({"steps": steps}))


if __name__ == "__main__":
    main()
