"""What Silo has to know of the compiler and the loaders before they are imported: this module imports nothing else."""

from silo.core.declaration import BlobKind, CompilerDeclaration, LoaderDeclaration, Option

RPN = CompilerDeclaration(
    name="rpn",
    compiler="silo_rpn.compiler:RpnCompiler",
    sources=("rpn",),
    targets=("rpn",),
    options=(
        Option("rpn_lanes", int, 0, "elements computed at a time; 0 for all", allowed=range(1 << 20), launch=True),
        Option("rpn_python", bool, default=False, meaning="make Python code instead of code for the machine"),
    ),
    blobs=(
        BlobKind("rpncode"),  # data for the machine, which can do nothing but arithmetic
        BlobKind("rpnpy", host_code=True),  # runs in the process that loads it, so it needs consent
    ),
    code=("silo_rpn",),
)

RPNCODE = LoaderDeclaration("rpncode", host_code=False, load="silo_rpn.loader:load_machine_code")
RPNPY = LoaderDeclaration("rpnpy", host_code=True, load="silo_rpn.loader:load_python")
