#!/usr/bin/env bash
# One wheel for every CPython from 3.10 on, and every torch: dist/lacis-….whl.
# Inside a manylinux_2_28 image, or with zig at hand (pip install ziglang), the wheel is one for any Linux of
# glibc 2.28 or newer; elsewhere it is one for systems as new as this one, and its name says which.
set -euo pipefail
cd "$(dirname "$0")/.."

[ -x target/venv/bin/python ] || python3 -m venv target/venv
python=target/venv/bin/python
"$python" -m pip install --quiet "maturin>=1.9,<2"
flags=(--release --manifest-path crates/lacis-py/Cargo.toml --out dist)
if "$python" -c "import ziglang" 2>/dev/null; then
    # It is looked for with the first Python there is.
    export PATH="$PWD/target/venv/bin:$PATH"
    flags+=(--zig --compatibility manylinux_2_28)
fi
"$python" -m maturin build "${flags[@]}" "$@"
