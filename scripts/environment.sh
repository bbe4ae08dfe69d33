# Sourced by the other scripts: makes .venv in the checkout with all they need, or says what is missing.
# The environment is rebuilt only when pyproject.toml, setup.py or the native sources changed.

set -euo pipefail
ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
VENV="$ROOT/.venv"
PY="$VENV/bin/python"
TORCH=torch==2.13.0
TRITON=triton==3.9.0
TVM_FFI=apache-tvm-ffi==0.1.15.post2
CUTE=4.8.1
NVRTC=nvidia-cuda-nvrtc==13.5.37
JAX=0.10.2
MLX=0.32.4
LIBTPU=0.0.42.1
ZIG=ziglang==0.17.0
SPHINX=(sphinx==9.0.4 myst-parser==5.2.0 furo==2025.12.19)
OLD_TRITON=3.6.0
BETWEEN_TRITONS="3.7.1 3.8.0"
KERNEL_LIBRARIES=(liger-kernel==0.8.5 conch-triton-kernels==1.3 fla-core==0.6.0 einops==0.8.2)
cd "$ROOT"
# Without bytecode every process that a test starts compiles all it imports.
unset PYTHONDONTWRITEBYTECODE

say() { printf '\033[1m%s\033[0m\n' "$*" >&2; }
fail() { printf 'error: %s\n' "$*" >&2; exit 1; }

find_python() {
  local candidate
  for candidate in "${PYTHON:-}" python3.13 python3.12 python3.11 python3 python; do
    [ -n "$candidate" ] && command -v "$candidate" >/dev/null 2>&1 || continue
    if "$candidate" -c 'import sys; raise SystemExit(not (3, 11) <= sys.version_info[:2] <= (3, 14))' 2>/dev/null; then
      echo "$candidate"
      return
    fi
  done
  fail "no Python 3.11 to 3.14 found. Install one (Debian, Ubuntu: apt install python3 python3-venv), or set PYTHON=/path/to/python."
}

check_compiler() {
  local candidate
  for candidate in "${SILO_CC:-}" "${CC:-}" cc gcc clang; do
    [ -n "$candidate" ] && command -v "${candidate%% *}" >/dev/null 2>&1 && return
  done
  fail "no C compiler found. CPU kernels and the native module need one: install gcc or clang (Debian, Ubuntu: apt install gcc libc6-dev), or set CC."
}

fingerprint() { # of everything that decides what is installed
  (cat pyproject.toml setup.py native/*/*.c native/*/*.h scripts/environment.sh; "$PY" --version; echo "$ROOT") | sha256sum | cut -d' ' -f1
}

ensure_environment() {
  check_compiler
  if [ ! -x "$PY" ]; then
    local python
    python=$(find_python)
    say "making .venv with $($python --version)"
    "$python" -m venv "$VENV" || fail "could not make a virtual environment; Debian and Ubuntu need the package python3-venv"
  fi
  local stamp="$VENV/silo-stamp" now
  now=$(fingerprint)
  if [ "$(cat "$stamp" 2>/dev/null)" != "$now" ]; then
    say "installing Silo and what its scripts need into .venv (the first time takes a few minutes)"
    step() { printf '  %s of 6: %s\n' "$1" "$2" >&2; }
    quiet_pip() { "$PY" -m pip install --quiet --disable-pip-version-check "$@"; }
    step 1 "build tools"
    quiet_pip "setuptools>=77,<83" wheel
    # torch is the yardstick of the benchmark and one of the array libraries the tests cover; Silo does not need it.
    step 2 "$TORCH, some 200 MB, or 3 GB with the libraries of CUDA"
    quiet_pip "$TORCH" || say "torch could not be installed: its rows and tests are skipped"
    step 3 "$TRITON, some 200 MB"
    quiet_pip "$TRITON" || say "Triton could not be installed: kernels cannot be compiled, only bundles run"
    # The compiler of CUDA C++, with its headers: 58 MB, and the tests of silo.cuda need it in this environment.
    quiet_pip "$NVRTC" || say "NVRTC could not be installed: the tests of CUDA C++ are skipped"
    # Exported libraries are called through it.
    step 4 "$TVM_FFI"
    quiet_pip "$TVM_FFI" || say "tvm-ffi could not be installed: its tests are skipped"
    step 5 "Silo: its native module is compiled"
    quiet_pip --no-build-isolation --editable ".[triton,report,dev]"
    # Libraries of kernels that know nothing of Silo: the census runs them on the CPU. Their own lists of what they need ask for GPU builds.
    step 6 "libraries of kernels, for the tests"
    quiet_pip --no-deps "${KERNEL_LIBRARIES[@]}" || say "libraries of kernels could not be installed: their kinds are left out of the census"
    now=$(fingerprint)
    echo "$now" > "$stamp"
  fi
}

# A compiler for other systems, of 100 MB: checks and wheels alone need it.
ensure_zig() {
  "$PY" -c 'import importlib.metadata, sys; sys.exit(importlib.metadata.version("ziglang") != sys.argv[1])' "${ZIG#*==}" 2>/dev/null \
    || "$PY" -m pip install --quiet --disable-pip-version-check "$ZIG"
}

# A second environment with the oldest supported Triton.
OLD_VENV="$ROOT/.venv-triton36"
ensure_old_triton() {
  local stamp="$OLD_VENV/silo-stamp" wanted="triton==$OLD_TRITON, pytest-xdist and click"
  if [ "$(cat "$stamp" 2>/dev/null)" != "$wanted" ]; then
    say "making .venv-triton36 with triton==$OLD_TRITON"
    "$PY" -m venv "$OLD_VENV"
    "$OLD_VENV/bin/python" -m pip install --quiet --disable-pip-version-check "triton==$OLD_TRITON" "setuptools>=77,<83" numpy ml_dtypes \
      "pytest>=8,<10" "pytest-timeout>=2.3,<3" "pytest-xdist>=3.5,<4" "hypothesis>=6.100,<7" "zstandard>=0.22,<1" "platformdirs>=4,<5" \
      "click>=8.2,<9" "rich>=13,<16" || return 1
    echo "$wanted" > "$stamp"
  fi
}

# An environment with a few packages, each unpacked alone, that takes all else from another environment.
ensure_beside() { # FOLDER, FOLDER of the other, PACKAGE...
  local made=$1 base=$2 stamp wanted
  shift 2
  wanted="$* for $("$base/bin/python" --version)"
  if [ "$(cat "$made/silo-stamp" 2>/dev/null)" != "$wanted" ]; then
    say "making ${made##*/} with $1"
    rm -rf "$made"
    "$base/bin/python" -m venv --without-pip "$made"
    "$PY" -m pip install --quiet --disable-pip-version-check --no-deps --no-compile --target "$made/packages" "$@" || return 1
    # pip compiles one file after the other.
    "$base/bin/python" -m compileall -q -j 0 "$made/packages" >/dev/null || true # some files are for other Pythons
    # As folders of a site, whose .pth files are read; the first of two packages of one name is taken.
    printf 'import site; site.addsitedir("%s")\n' "$made/packages" "$(echo "$base"/lib/python3*/site-packages)" \
      > "$(echo "$made"/lib/python3*/site-packages)/silo.pth"
    echo "$wanted" > "$made/silo-stamp"
  fi
}

# The Tritons between the oldest and the newest.
ensure_between_triton() { # VERSION, as 3.7.1; sets BETWEEN_VENV
  local minor=${1%.*}
  BETWEEN_VENV="$ROOT/.venv-triton${minor//./}"
  ensure_beside "$BETWEEN_VENV" "$OLD_VENV" "triton==$1"
}

# The CuTe DSL and what it imports: its own package asks for a second toolkit.
CUTE_VENV="$ROOT/.venv-cute"
ensure_cute() {
  ensure_beside "$CUTE_VENV" "$VENV" "nvidia-cutlass-dsl==$CUTE" "nvidia-cutlass-dsl-libs-base==$CUTE" "nvidia-cutlass-dsl-libs-core==$CUTE" \
    "nvidia-cutlass-dsl-libs-cu13==$CUTE" "cuda-bindings>=13,<14" "cuda-pathfinder>=1,<2" "protobuf>=5,<8"
}

# MLX for CPUs: arrays of its own for the double of its Metal kernels.
MLX_VENV="$ROOT/.venv-mlx"
ensure_mlx() {
  ensure_beside "$MLX_VENV" "$VENV" "mlx==$MLX" "mlx-cpu==$MLX"
}

# jax with what Pallas needs, and the compiler for TPUs, which needs none.
PALLAS_VENV="$ROOT/.venv-pallas"
ensure_pallas() {
  ensure_beside "$PALLAS_VENV" "$VENV" "jax==$JAX" "jaxlib==$JAX" "flatbuffers>=24.3" "opt_einsum>=3.4,<4" "scipy>=1.14,<2" "absl-py>=2,<3" "libtpu==$LIBTPU"
}

# Sphinx with MyST and the theme, and the packages that they import.
DOCS_VENV="$ROOT/.venv-docs"
ensure_docs() {
  ensure_beside "$DOCS_VENV" "$VENV" "${SPHINX[@]}" accessible-pygments==0.0.5 alabaster==1.0.0 babel==2.19.0 beautifulsoup4==4.15.0 \
    certifi charset-normalizer docutils==0.22.4 idna imagesize==2.0.1 mdit-py-plugins==0.7.0 requests roman-numerals==4.1.0 snowballstemmer==3.1.1 \
    soupsieve sphinx-basic-ng==1.0.0b2 sphinxcontrib-{applehelp,devhelp,htmlhelp,jsmath,qthelp,serializinghtml} urllib3
}

# Clang for Metal kernels on the CPU. Only a run of CI as root has it installed, where apt knows one: people are told.
CLANGS="clang-19 clang-20 clang-18 clang-17 clang-16"
find_clang() { "$PY" -c 'from silo.emulation.clang import find_clang; print(find_clang().version)' 2>&1; }
ensure_clang() {
  local known package
  find_clang >/dev/null && return
  [ -n "${CI:-}${SILO_TEST_INSTALL:-}" ] && [ "$(id -u)" = 0 ] && command -v apt-get apt-cache >/dev/null || return 1
  timeout 90 apt-get update -qq >/dev/null 2>&1 || say "apt-get update failed: what it knew before has to do"
  known=" $(apt-cache pkgnames clang- | tr '\n' ' ')"
  for package in $CLANGS; do
    case $known in *" $package "*) ;; *) continue ;; esac
    say "installing $package for the tests of Metal kernels"
    DEBIAN_FRONTEND=noninteractive timeout 300 apt-get install -y -qq --no-install-recommends "$package" >/dev/null 2>&1 || return 1
    find_clang >/dev/null
    return
  done
  return 1
}
why_no_clang() { find_clang | tail -n 1; }
