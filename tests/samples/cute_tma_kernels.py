"""A kernel with tensor maps, as ``silo build`` takes it. Needs the DSL."""

import silo
from cute_tma import COLUMNS, ROWS, copy_host

copy = silo.cute(
    copy_host,
    signature="source: in *bf16, target: out *bf16",
    grid=lambda a: (a.source.shape[0] // ROWS, a.source.shape[1] // COLUMNS),
    name="copy",
)


@copy.cases(rows=[256, 1024])
def matrices(rows, make):
    source, target = make.normal(rows, 512, dtype="bfloat16"), make.empty(rows, 512, dtype="bfloat16")
    return silo.Case(args=(source, target), expected={"target": lambda: source.host})
