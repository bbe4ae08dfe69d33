"""Heuristics: propose configs, with reasons, from the target, the sizes and a few facts about the kernel.

Pure functions, with a module for each kind of kernel. They read nothing from the machine they run on: choices for AMD
or Intel follow from the target, so a cross-compiling machine gets the same configs as a machine with the device. The
values follow PyTorch 2.13 (Inductor).
"""

from silo.heuristics.blocks import fixed, foreach, lookup, lookup_key, template, user
from silo.heuristics.candidates import Candidates, HeuristicCandidate
from silo.heuristics.combo import BoundCombo, ComboLayout, ComboSpace, SubKernel, combo, combo_space
from silo.heuristics.facts import (
    AutotuneHint,
    KernelFacts,
    ReductionHint,
    SizeHints,
    TargetFacts,
    TileHint,
    TuningEffort,
)
from silo.heuristics.heuristic_space import BoundSpace, HeuristicSpace, space
from silo.heuristics.pointwise import pointwise
from silo.heuristics.reductions import (
    cooperative_reduction,
    mix_order,
    native_matmul,
    persistent_reduction,
    reduction,
    split_scan,
)
from silo.heuristics.unmeasured_choices import KernelChoice, cooperative_fits, fastest, nearest, persistent_fits

__all__ = [
    "AutotuneHint",
    "BoundCombo",
    "BoundSpace",
    "Candidates",
    "ComboLayout",
    "ComboSpace",
    "HeuristicCandidate",
    "HeuristicSpace",
    "KernelChoice",
    "KernelFacts",
    "ReductionHint",
    "SizeHints",
    "SubKernel",
    "TargetFacts",
    "TileHint",
    "TuningEffort",
    "combo",
    "combo_space",
    "cooperative_fits",
    "cooperative_reduction",
    "fastest",
    "fixed",
    "foreach",
    "lookup",
    "lookup_key",
    "mix_order",
    "native_matmul",
    "nearest",
    "persistent_fits",
    "persistent_reduction",
    "pointwise",
    "reduction",
    "space",
    "split_scan",
    "template",
    "user",
]
