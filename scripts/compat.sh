#!/usr/bin/env bash
# The Python package with the oldest torch and PyG that it promises to work with, or with others:
#     scripts/compat.sh [torch version] [PyG version] [what pytest should do]
# Makes an environment of its own under target/, installs the package as it is, runs the tests, and
# appends the outcome to target/compat.txt. A Python that this torch was made for is looked for.
set -euo pipefail
cd "$(dirname "$0")/.."

torch=${1:-2.4.1} pyg=${2:-2.5.3}
shift $(($# < 2 ? $# : 2))
python=python3
for candidate in ${PYTHON:-} python3.12 python3.11 python3.10; do
    if "$candidate" --version >/dev/null 2>&1; then python=$candidate; break; fi
done
folder=target/compat-$torch-$pyg
[ -x "$folder/bin/python" ] || "$python" -m venv "$folder"
own=$folder/bin/python
# Packages of that time were compiled for NumPy 1.
"$own" -m pip install --quiet "torch==$torch" "torch_geometric==$pyg" "numpy<2" pytest
"$own" -m pip install --quiet --force-reinstall --no-deps ./crates/lacis-py
outcome=passed
(cd crates/lacis-py && "../../$own" -m pytest -q -p no:cacheprovider "$@") || outcome=failed
line="$outcome: torch $torch, PyG $pyg, $("$own" --version)"
echo "$line" | tee -a target/compat.txt
[ "$outcome" = passed ]
