#!/usr/bin/env bash
# Everything that must hold, for people and machines alike. Needs a Rust toolchain and Python.
# The tests use real data where LACIS_TEST_DATA names its folder, and say what they skip elsewhere.
set -euo pipefail
cd "$(dirname "$0")/.."

python3 scripts/sizes.py --check
cargo fmt --all --check
cargo clippy --workspace --all-targets -- -D warnings
cargo test --workspace
# Built by the line above.
for example in first own_graph own_layer observe_and_stop predict; do
    "target/debug/examples/$example" >/dev/null
done
scripts/kills.sh target/debug/lacis 8
# The command and the Python extension share one build of the kernels.
cargo build --release --workspace
RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --quiet
# The library stays light: neither the command's dependencies nor heavy readers come with it.
if cargo tree -p lacis -e normal --prefix none | grep -E '^(clap|arrow|parquet) '; then
    echo "the library must not depend on these" >&2
    exit 1
fi
scripts/python.sh
