#!/usr/bin/env bash
# Installs the Python package into an environment of its own, target/venv, and tests it there.
# What pytest should do may be added: scripts/python.sh -k package
#
# torch and PyG are taken from the Python that runs this where it has them, else installed.
set -euo pipefail
cd "$(dirname "$0")/.."

if [ ! -x target/venv/bin/python ]; then
    has_torch() { python3 -c "import torch, torch_geometric" 2>/dev/null; }
    python3 -m venv $(has_torch && echo --system-site-packages) target/venv
fi
python=target/venv/bin/python
"$python" -c "import torch, torch_geometric" 2>/dev/null ||
    "$python" -m pip install --quiet torch torch_geometric
"$python" -c "import numpy, pytest" 2>/dev/null || "$python" -m pip install --quiet numpy pytest
# pip builds in place, in the release profile: only the extension is compiled anew.
"$python" -m pip install --quiet --force-reinstall --no-deps ./crates/lacis-py
cd crates/lacis-py
exec "../../$python" -m pytest -q -p no:cacheprovider "$@"
