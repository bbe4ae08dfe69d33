"""Heuristics: configs worth trying, with reasons, from the target, the sizes and a few facts of the kernel.

Pure functions, one kind of kernel a module. They ask nothing of the machine they run on: what is chosen for AMD or
Intel is decided by the target, so cross-compiling finds what the device would. The values follow PyTorch 2.13
(Inductor).
"""

from silo.heuristics.candidates import Candidates, HeuristicCandidate
from silo.heuristics.combo import ComboPlan, SubKernel, combo
from silo.heuristics.combo_space import BoundCombo, ComboSpace, combo_space
from silo.heuristics.cooperative_reduction import cooperative_reduction
from silo.heuristics.given_blocks import fixed, foreach, template, user
from silo.heuristics.heuristic_space import BoundSpace, HeuristicSpace, space
from silo.heuristics.kernel_choice import KernelChoice, cooperative_fits, fastest, nearest, persistent_fits
from silo.heuristics.kernel_facts import AutotuneHint, KernelFacts, ReductionHint, SizeHints, TileHint, TuningEffort
from silo.heuristics.lookup_table import lookup, lookup_key
from silo.heuristics.looped_reduction import reduction
from silo.heuristics.mix_order import mix_order
from silo.heuristics.native_matmul import native_matmul
from silo.heuristics.persistent_reduction import persistent_reduction
from silo.heuristics.pointwise import pointwise
from silo.heuristics.split_scan import split_scan
from silo.heuristics.target_facts import TargetFacts

__all__ = [
    "AutotuneHint",
    "BoundCombo",
    "BoundSpace",
    "Candidates",
    "ComboPlan",
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
