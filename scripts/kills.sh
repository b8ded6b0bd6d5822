#!/usr/bin/env bash
# Kills a training with -9 at random moments, resumes it each time, and compares what comes out with
# a run that nobody disturbed: scripts/kills.sh [LACIS] [KILLS] [SEED].
set -euo pipefail
lacis=${1:-target/release/lacis}
kills=${2:-50}
RANDOM=${3:-1}

dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
train=("$lacis" train sbm:n=300,e=1500,classes=4,features=12,seed=1 --dropout 0.5 --epochs 400
       --model gcn --hidden 32 --norm batch --threads 2 --checkpoint-every 7 -q)
"${train[@]}" --out "$dir/whole" >/dev/null

# Runs a command and kills it after a random part of half a second; fails if it failed by itself.
disturbed() {
    "$@" >/dev/null 2>"$dir/stderr" &
    local job=$!
    sleep "0.$(printf %03d $((RANDOM % 500)))"
    if kill -9 "$job" 2>/dev/null; then killed=$((killed + 1)); fi
    local code=0
    wait "$job" 2>/dev/null || code=$?
    if [ "$code" -ne 0 ] && [ "$code" -ne 137 ]; then
        echo "after $killed kills: exit code $code" >&2
        cat "$dir/stderr" >&2
        exit 1
    fi
}

killed=0 run=0 begun=0
while [ "$killed" -lt "$kills" ]; do
    run=$((run + 1))
    cut="$dir/cut-$run"
    disturbed "${train[@]}" --out "$cut"
    # A folder appears whole: one that is there can be resumed.
    [ -d "$cut" ] || continue
    begun=$((begun + 1))
    for _ in 1 2 3; do
        [ "$killed" -lt "$kills" ] || break
        disturbed "$lacis" train --resume "$cut" --checkpoint-every 7 -q
    done
    "$lacis" train --resume "$cut" -q >/dev/null
    cmp "$dir/whole/model.safetensors" "$cut/model.safetensors"
    for folder in whole "cut-$run"; do
        sed 's/,"ms":[^,}]*//; s/"ms":[^,}]*,//' "$dir/$folder/metrics.jsonl" >"$dir/$folder.losses"
    done
    cmp "$dir/whole.losses" "$dir/cut-$run.losses"
    if find "$cut" -name '.*partial' | grep -q .; then
        echo "$cut: something was left behind" >&2
        exit 1
    fi
done
echo "$killed kills, $begun runs resumed: all ended with the bits of an undisturbed one"
