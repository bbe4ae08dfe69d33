"""A task for ``silo judge``: adding two arrays. ``silo judge examples/judge_add.py CANDIDATE.py``."""

import silo


@silo.task(baseline="judge_add_baseline.py")
def add(draw):
    """out = x + y, for sizes up to 5000."""
    n = draw.size(1, 5000)
    x, y, out = draw.array(n), draw.array(n), draw.empty(n)
    return draw.case(lambda: {"out": x.double + y.double}, x=x, y=y, out=out, n=n)
