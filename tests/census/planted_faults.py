"""Faults planted into kernels of installed projects, in programs with many launches: does ``silo crash`` name them?

    PYTHONPATH=src:tests/samples python -m tests.census.planted_faults [--device cuda] [--only NAME] [--json FILE]

Each plant changes a few words of one kernel in a temporary copy of its file. A process of its own makes launches of
innocent kernels, calls the planted one, makes more launches, and ends with a report: written by a signal's handler, at
a lost GPU, or at its end. The report is examined as ``silo crash`` does (from the ring alone), and the program runs
again as ``silo exec --check-launches`` runs it. A verdict on another kernel, or on another line, is a failure.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

__all__ = ["FORKS", "PLANTS", "Forks", "Outcome", "Plant", "examine", "run_plant"]

Call = Callable[[Any, Any, str], object]


@dataclass(frozen=True)
class Plant:
    """``edits`` replace words of ``module``'s text, from ``kernel``'s definition on, each in its first place.

    ``at`` is part of the line that a verdict has to name, as it is after the edits. ``call`` takes the changed module,
    torch and the device. ``ring``: the fault follows from addresses and numbers alone.
    """

    name: str
    module: str
    kernel: str
    fault: str
    edits: tuple[tuple[str, str], ...]
    at: str
    call: Call
    ring: bool = True


@dataclass(frozen=True)
class Outcome:
    """What came out for a plant: "named", "undecided" or a fault of the harness's subject, in words."""

    plant: str
    fault: str
    ring: str
    second: str
    text: str = ""


def _rows(torch: Any, device: str, rows: int = 6, columns: int = 100) -> Any:
    return torch.randn(rows, columns, device=device)


def _rms(module: Any, torch: Any, device: str) -> object:
    weight = torch.ones(100, device=device)
    return module.rms_norm_forward(_rows(torch, device), weight, 1e-6, 0.0, "llama", True)


def _kl(module: Any, torch: Any, device: str) -> object:
    x = _rows(torch, device)
    return module.kldiv_forward_triton(x.log_softmax(-1), x.softmax(-1), False, "batchmean", 1e-10)


def _tvd(module: Any, torch: Any, device: str) -> object:
    x = _rows(torch, device).softmax(-1)
    return module.tv_distance_forward_triton(x, x.flip(0).contiguous(), None, "batchmean", -100, False)


def _dyt(module: Any, torch: Any, device: str) -> object:
    one = torch.ones(100, device=device)
    return module.liger_dyt_fwd(_rows(torch, device), torch.ones(1, device=device), one, one.clone())


def _pack(module: Any, torch: Any, device: str) -> object:
    lengths = torch.tensor([0, 3, 8], device=device)
    return module.pack_sequence_fwdbwd(torch.randn(2, 5, 16, device=device), lengths, "left")


def _sequence(torch: Any, device: str, *shape: int) -> Any:
    return torch.randn(*shape, device=device)


_FLA, _LIGER = "fla.ops.utils", "liger_kernel.ops"

PLANTS = (
    Plant(
        "softmax_mask",
        f"{_FLA}.softmax",
        "softmax_fwd_kernel",
        "mask",
        (("mask=m_d, other=-float('inf')", "mask=o_d < D + 8, other=-float('inf')"),),
        "b_x = tl.load(",
        lambda m, torch, device: m.softmax_fwd(_rows(torch, device)),
    ),
    Plant(
        "softmax_stride",
        f"{_FLA}.softmax",
        "softmax_bwd_kernel",
        "stride",
        (("ds + i_n * D", "ds + i_n * (D + 30)"),),
        "tl.store(ds",
        lambda m, torch, device: m.softmax_bwd(_rows(torch, device), _rows(torch, device)),
    ),
    Plant(
        "logsumexp_stride",
        f"{_FLA}.logsumexp",
        "logsumexp_fwd_kernel",
        "stride",
        (("tl.cdiv(D, B) + i_d", "D + i_d"),),
        "tl.store(z",
        lambda m, torch, device: m.logsumexp_fwd(_rows(torch, device)),
    ),
    Plant(
        "logsumexp_race",
        f"{_FLA}.logsumexp",
        "logsumexp_fwd_kernel",
        "race",
        (("i_n * tl.cdiv(D, B) + i_d", "i_d"),),
        "tl.store(z",
        lambda m, torch, device: m.logsumexp_fwd(_rows(torch, device)),
        ring=False,
    ),
    Plant(
        "pooling_size",
        f"{_FLA}.pooling",
        "mean_pooling_fwd_kernel",
        "size",
        (("(o_t[:, None] < T)", "(o_t[:, None] < T + 5)"),),
        "b_x = tl.load(",
        lambda m, torch, device: m.mean_pooling_fwd(_sequence(torch, device, 2, 37, 2, 32), 16),
    ),
    Plant(
        "cumsum_size",
        f"{_FLA}.cumsum",
        "chunk_local_cumsum_scalar_kernel",
        "size",
        (("p_o = o + bos*H + i_h", "p_o = o + bos*H + i_h + 1"),),
        "tl.store(p_o",
        lambda m, torch, device: m.chunk_local_cumsum_scalar(_sequence(torch, device, 2, 32, 4), 16),
    ),
    Plant(
        "cumsum_stride",
        f"{_FLA}.cumsum",
        "chunk_local_cumsum_vector_kernel",
        "stride",
        (("p_s = s + (bos * H + i_h) * S", "p_s = s + (bos * H + i_h) * 2 * S"),),
        "b_s = tl.load(",
        lambda m, torch, device: m.chunk_local_cumsum_vector(_sequence(torch, device, 2, 32, 4, 32), 16),
    ),
    Plant(
        "pack_loaded",
        f"{_FLA}.pack",
        "packunpack_sequence_kernel",
        "size",
        (("y + i_t * D", "y + (i_t + 1) * D"),),
        "tl.store(y + (i_t",
        _pack,
        ring=False,
    ),
    Plant(
        "swiglu_size",
        f"{_LIGER}.swiglu",
        "_swiglu_forward_kernel",
        "size",
        (("tl.load(b_ptr + col_offsets", "tl.load(b_ptr + 1 + col_offsets"),),
        "b_row = tl.load(b_ptr + 1",
        lambda m, torch, device: m.swiglu_forward(_rows(torch, device), _rows(torch, device)),
    ),
    Plant(
        "relu_dtype",
        f"{_LIGER}.relu_squared",
        "_relu_squared_forward_kernel",
        "dtype view",
        (
            ("tl.maximum(x_row, 0)", "tl.maximum(x_row, 0.0)"),  # else Triton has the innocent kernel's code
            ("torch.empty_like(X_2d)", "torch.empty_like(X_2d, dtype=torch.int8).view(X_2d.dtype)"),
            ("Y.stride(-2)", "X_2d.stride(-2)"),
            ("return Y.view(*ori_shape)", "return Y"),
        ),
        "tl.store(Y_ptr + col_offsets, y_row",
        lambda m, torch, device: m.relu_squared_forward(_rows(torch, device)),
    ),
    Plant(
        "softmax_row",
        f"{_LIGER}.softmax",
        "_softmax_single_block_forward_kernel",
        "stride",
        (("Y_ptr + row_id * Y_row_stride", "Y_ptr + (row_id + 1) * Y_row_stride"),),
        "tl.store(Y_ptr + (row_id",
        lambda m, torch, device: m._softmax_forward(_rows(torch, device)),
    ),
    Plant(
        "softmax_wrap",
        f"{_LIGER}.softmax",
        "_softmax_single_block_forward_kernel",
        "int32 wrap",
        (
            ("tl.program_id(0).to(tl.int64)", "tl.program_id(0)"),
            ("X_ptr + row_id * X_row_stride", "X_ptr + row_id * X_row_stride * 16777216"),
        ),
        "x = tl.load(X_ptr",
        lambda m, torch, device: m._softmax_forward(_rows(torch, device)),
    ),
    Plant(
        "rms_weight",
        f"{_LIGER}.rms_norm",
        "_rms_norm_forward_kernel",
        "stride",
        (("tl.load(W_ptr + col_offsets", "tl.load(W_ptr + row_idx * n_cols + col_offsets"),),
        "W_row = tl.load(",
        _rms,
    ),
    Plant(
        "rms_rstd",
        f"{_LIGER}.rms_norm",
        "_rms_norm_forward_kernel",
        "stride",
        (("RSTD_ptr + row_idx * RSTD_row_stride", "RSTD_ptr + row_idx * n_cols"),),
        "tl.store(rstd_base",
        _rms,
    ),
    Plant(
        "geglu_stride",
        f"{_LIGER}.geglu",
        "_geglu_tanh_forward_kernel",
        "stride",
        (("c += program_id * stride", "c += program_id * stride * 2"),),
        "tl.store(c +",
        lambda m, torch, device: m.geglu_forward(_rows(torch, device), _rows(torch, device)),
    ),
    Plant(
        "geglu_unset",
        f"{_LIGER}.geglu",
        "_geglu_tanh_forward_kernel",
        "unset read",
        (("tl.store(c + col_offsets, c_row", "tl.store(c + col_offsets, c_row + tl.load(c + col_offsets, mask, 0)"),),
        "tl.store(c +",
        lambda m, torch, device: m.geglu_forward(_rows(torch, device), _rows(torch, device)),
        ring=False,
    ),
    Plant(
        "kl_masked",
        f"{_LIGER}.kl_div",
        "_kldiv_kernel_forward",
        "mask",
        (("gt_ptr + offsets, mask=mask, other=0.0", "gt_ptr + offsets, mask=mask"),),
        "y_true = tl.load(",
        _kl,
        ring=False,
    ),
    Plant(
        "dyt_mask",
        f"{_LIGER}.dyt",
        "_dyt_fwd_kernel",
        "mask",
        (("Beta + col, mask=mask, other=0.0", "Beta + col"),),
        "beta = tl.load(",
        _dyt,
    ),
    Plant(
        "tvd_race",
        f"{_LIGER}.tvd",
        "_tv_distance_kernel",
        "race",
        (("grads_ptr += pid * grads_stride", "grads_ptr += (pid // 2) * grads_stride"),),
        "tl.store(grads_ptr + offsets, grad_res",
        _tvd,
        ring=False,
    ),
    Plant(
        "tvd_stride",
        f"{_LIGER}.tvd",
        "_tv_distance_kernel",
        "stride",
        (("loss_ptr += pid * loss_stride", "loss_ptr += pid * (loss_stride + 70)"),),
        "tl.store(loss_ptr, loss_sum",
        _tvd,
    ),
)


# ---- in the process that launches


def _source(module: str) -> Path:
    top, _, rest = module.partition(".")
    found = importlib.util.find_spec(top)
    if found is None or found.origin is None:
        raise ModuleNotFoundError(top)
    return Path(found.origin).parent / (rest.replace(".", "/") + ".py")


def planted_text(plant: Plant) -> tuple[str, tuple[int, ...]]:
    """The changed text, and the lines that a verdict may name."""
    text = _source(plant.module).read_text(encoding="utf-8")
    start = text.index(f"def {plant.kernel}(")
    for old, new in plant.edits:
        text = text[:start] + _replaced(text[start:], old, new, plant)
    lines = tuple(number for number, line in enumerate(text.splitlines(), 1) if plant.at in line)
    if not lines:
        raise ValueError(f"{plant.name}: no line has {plant.at!r}")
    return text, lines


def _replaced(text: str, old: str, new: str, plant: Plant) -> str:
    if old not in text:
        raise ValueError(f"{plant.name}: {plant.module} has no {old!r}; it is another version")
    return text.replace(old, new, 1)


def _module(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = made
    spec.loader.exec_module(made)
    for value in list(vars(made).values()):  # the first config will do
        tuner = value
        while tuner is not None:
            if len(getattr(tuner, "configs", ())) > 1:
                tuner.configs = tuner.configs[:1]
            tuner = getattr(tuner, "fn", None) if hasattr(tuner, "run") else None
    return made


def _innocents(torch: Any, device: str, folder: Path, turns: int) -> Callable[[], None]:
    """Launches of the kernels as they are."""
    modules = {one.module: one for one in reversed(PLANTS)}
    loaded: list[tuple[Any, Plant]] = []
    for index, plant in enumerate(modules.values()):
        path = folder / f"innocent_{index}.py"
        path.write_text(_source(plant.module).read_text(encoding="utf-8"), encoding="utf-8")
        loaded.append((_module(path), plant))

    def run() -> None:
        for _ in range(turns):
            for module, plant in loaded:
                plant.call(module, torch, device)

    return run


def program(name: str, device: str, folder: Path, turns: int) -> None:
    """The program: many launches, the planted kernel in their midst, a report at the end."""
    import torch

    import silo

    torch.manual_seed(0)
    silo.accelerate()
    plant = next(one for one in PLANTS if one.name == name)
    text, _ = planted_text(plant)
    path = folder / f"planted_{name}.py"
    path.write_text(text, encoding="utf-8")
    innocents = _innocents(torch, device, folder, turns)
    innocents()
    plant.call(_module(path), torch, device)
    innocents()
    if device == "cuda":
        torch.cuda.synchronize()
    silo.dump_launches()


# ---- around it


def _started(plant: Plant, device: str, folder: Path, turns: int, suspects: Path | None = None) -> str:
    """Run a plant's program; its standard error."""
    if device == "cpu":
        return FORKS[0](plant, folder, turns, suspects)
    root = Path(__file__).resolve().parents[2]
    words = [sys.executable, "-m", "tests.census.planted_faults", "--program", plant.name]
    words += ["--device", device, "--folder", str(folder), "--turns", str(turns)]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join((str(root / "src"), str(root))),
        "SILO_ACCELERATE": "1",
        "SILO_FLIGHT": "1",
        "SILO_FLIGHT_FILE": str(folder / ("crash.silo" if suspects is None else "second.silo")),
        "SILO_FLIGHT_CHECK": "" if suspects is None else str(suspects),
        "SILO_COMPILE_AHEAD": "0",
        "SILO_KEEP_DECISIONS": "0",
    }
    done = subprocess.run(words, cwd=root, env=environment, capture_output=True, text=True, check=False, timeout=300)
    return done.stderr


def examine(path: Path, known: dict[object, Any]) -> list[Any]:
    """The verdicts of ``silo crash``; launches alike, of any report, are checked once."""
    from silo.checking.crash_report import read_report
    from silo.commands import crash_suspects
    from silo.commands.examine_crash import Examiner

    report = read_report(path)
    examiner = Examiner(report)
    verdicts: list[Any] = []
    for suspect in crash_suspects.suspects_of(report):
        kernel = report.kernels[suspect.launch.kernel]
        reason = crash_suspects.unchecked_reason(report, suspect.launch)
        if reason:
            verdicts.append(crash_suspects.Verdict(kernel.name, suspect.numbers, "undecided", reason))
            continue
        likeness = crash_suspects.likeness_of(report, suspect.launch)
        if likeness not in known:
            known[likeness] = examiner.verdict(suspect)
        verdicts.append(known[likeness])
    return verdicts


def judged(plant: Plant, verdicts: Sequence[Any]) -> tuple[str, str]:
    """ "named", "undecided" or the mistake, and the verdict's text."""
    text, lines = planted_text(plant)
    del text
    named = [one for one in verdicts if one.outcome == "named"]
    for one in named:
        file, _, line = one.place.rpartition(":")
        if Path(file).name != f"planted_{plant.name}.py" or int(line) not in lines:
            return f"WRONG: names {one.kernel} at {one.place}", one.text
    if named:
        return "named", named[0].text
    return "undecided", "; ".join(dict.fromkeys(one.text for one in verdicts if one.kind != "values"))[:400]


def run_plant(plant: Plant, device: str, turns: int, known: dict[object, Any], *, second: bool = True) -> Outcome:
    """Both runs of one plant, each in a process of its own."""
    with tempfile.TemporaryDirectory(prefix="silo-plant-") as name:
        folder = Path(name)
        report = folder / "crash.silo"
        first = _started(plant, device, folder, turns)
        if not report.exists():
            return Outcome(plant.name, plant.fault, "no report", "", first[-1500:])
        ring, text = judged(plant, examine(report, known))
        if not second:
            return Outcome(plant.name, plant.fault, ring, "", text)
        again = _started(plant, device, folder, 1, report)
        return Outcome(plant.name, plant.fault, ring, _second(plant, again), text or again[-600:])


class Forks:
    """For the CPU: programs as children of one process, which has imported everything and compiled the innocents."""

    def __init__(self, folder: Path) -> None:
        import torch

        import silo

        torch.set_num_threads(1)
        self._torch = torch
        self._kept = silo.accelerate()
        self._innocents = {turns: _innocents(torch, "cpu", folder, turns) for turns in (1,)}
        self._innocents[1]()

    def __call__(self, plant: Plant, folder: Path, turns: int, suspects: Path | None) -> str:
        """Run the program; its standard error."""
        errors = folder / "stderr"
        child = os.fork()
        if child == 0:
            code = 1
            with errors.open("wb") as file:
                os.dup2(file.fileno(), 2)
            try:
                self._program(plant, folder, turns, suspects)
                code = 0
            except BaseException:  # noqa: BLE001  # the parent reads it
                import traceback

                sys.stderr.write(traceback.format_exc())
                sys.stderr.flush()
            finally:
                os._exit(code)
        os.waitpid(child, 0)
        return errors.read_text(encoding="utf-8", errors="replace")

    def _program(self, plant: Plant, folder: Path, turns: int, suspects: Path | None) -> None:
        from silo.launch import flight
        from silo.settings import override

        torch = self._torch
        torch.manual_seed(0)
        with override(flight_file=folder / ("crash.silo" if suspects is None else "second.silo")):
            flight.start()
        flight.clear()
        if suspects is not None:
            from silo.commands.launch_checks import start

            start(suspects)
        text, _ = planted_text(plant)
        path = folder / f"planted_{plant.name}.py"
        path.write_text(text, encoding="utf-8")
        module = _module(path)
        for _ in range(turns):
            self._innocents[1]()
        kept = plant.call(module, torch, "cpu")
        flight.dump_launches()  # at once: the fault may have damaged the heap, which a GPU's cannot
        del kept


FORKS: list[Forks] = []


def _second(plant: Plant, stderr: str) -> str:
    """What the second run's last error names."""
    _, lines = planted_text(plant)
    found = [line for line in stderr.splitlines() if line.startswith("silo.errors.CheckError: ")]
    if not found:
        return "undecided" if "Error" not in stderr else f"WRONG: {stderr[-300:]}"
    if any(f"planted_{plant.name}.py:{line}," in found[-1] for line in lines):
        return "named"
    return f"WRONG: {found[-1]}"


def main() -> int:
    """Run all plants, and print a table; 1 if a bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--only", action="append")
    parser.add_argument("--turns", type=int, default=10, help="of the innocent kernels, before and after the plant")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--program", help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.program is not None:
        program(options.program, options.device, options.folder, options.turns)
        return 0
    plants = [one for one in PLANTS if not options.only or one.name in options.only]
    known: dict[object, Any] = {}
    scratch = tempfile.TemporaryDirectory(prefix="silo-innocent-")
    if options.device == "cpu":
        os.environ.setdefault("SILO_FLIGHT", "1")  # before the first launch
        FORKS.append(Forks(Path(scratch.name)))
    with ThreadPoolExecutor(options.jobs) as pool:
        outcomes = list(pool.map(lambda one: run_plant(one, options.device, options.turns, known), plants))
    for one in outcomes:
        print(f"{one.plant:18} {one.fault:12} ring: {one.ring:12} second run: {one.second}")
        if one.ring == "undecided" or "WRONG" in one.ring + one.second or one.ring == "no report":
            print(f"    {one.text}")
    rings = sum(one.ring == "named" for one in outcomes)
    seconds = sum(one.second == "named" for one in outcomes)
    wrong = sum("WRONG" in one.ring + one.second or one.ring == "no report" for one in outcomes)
    print(f"{len(outcomes)} plants: {rings} named from the ring, {seconds} in the second run, {wrong} wrong")
    if options.json is not None:
        options.json.write_text(json.dumps([asdict(one) for one in outcomes], indent=1), encoding="utf-8")
    return int(bool(wrong) or rings < 0.6 * len(outcomes) or seconds < 0.95 * len(outcomes))


if __name__ == "__main__":
    sys.exit(main())
