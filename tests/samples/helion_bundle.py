"""Four kernels that Helion generates for CuTe, and one written by hand, as Silo kernels with cases, for ``silo build``.

``silo build tests/samples/helion_bundle.py --target cuda:sm_90a --output helion.silo`` needs no GPU;
tests/gpu/test_helion_cute.py launches the bundle.
"""

import numpy as np

import helion_cute
import helion_form
from silo.integrations.helion import CallNotes


def _softmax(x, **_):
    powers = np.exp(x - x.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)


add = helion_cute.add_call().silo_kernel({"out": lambda x, y, **_: x + y})
softmax = helion_cute.softmax_call().silo_kernel({"out": _softmax})
row_sum = helion_cute.row_sum_call().silo_kernel({"out": lambda x, **_: x.sum(axis=1)}, atol=1e-3)
matmul = helion_cute.matmul_call().silo_kernel({"out": lambda x, y, **_: x @ y}, atol=1e-3)

_notes = CallNotes()
helion_form.turned(np.zeros(16384, np.float32), np.zeros(16384, np.float32), _launcher=_notes)
turned = _notes.calls[0].silo_kernel({"out": lambda x, **_: x[::-1]})
