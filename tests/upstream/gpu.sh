#!/usr/bin/env bash
# SGLang's own all-reduce on GPUs, out of real checkouts: the defect of the stock text, and that the patch mends it. CI has no GPU and does not run this.
#
#   gpu.sh prepare FOLDER ARCHITECTURES CHECKOUT...     compile (nvcc, no GPU); checkouts that `sgl-pcie apply --set sgl-kernel` has not touched
#   gpu.sh run FOLDER [NCCL]                            on the machine with GPUs; one line a run, exit 1 if anything is not as it must be
#
# stock     told that there is no full NVLink, four ranks: the call succeeds, and no element of the output is written
# virtual   patched, four ranks in one process on the GPUs that there are: one-stage and two-stage right on every rank, the refusal with its text
# process   patched, a process for each GPU: right, in CUDA graphs, and timed beside NCCL and ours
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)

prepare() {
    local folder=$1 archs=$2 checkout text name
    shift 2
    mkdir -p "$folder"
    for checkout in "$@"; do
        text=$checkout/sgl-kernel/csrc/allreduce/custom_all_reduce.cuh # to 0.5.16
        [ -e "$text" ] || text=$checkout/python/sglang/kernels/aot/csrc/allreduce/custom_all_reduce.cuh
        name=$(git hash-object --no-filters "$text" | cut -c1-8)
        add "$folder" "stock-$name" "$text" "$archs"
        "${SGL_PCIE:-$here/../../out/bin/sgl-pcie}" apply --quiet --source "$checkout" --set sgl-kernel
        add "$folder" "patched-$name" "$text" "$archs"
        "${SGL_PCIE:-$here/../../out/bin/sgl-pcie}" revert --quiet --source "$checkout" --set sgl-kernel
    done
}

# The program and libpar.so are the same for all of them.
add() {
    local folder=$1 name=$2 scratch
    scratch=$(mktemp -d)
    if [ -e "$folder/upstream-probe" ]; then
        python3 "$here/recipe.py" "$3" "$scratch" "$4"
    else
        python3 "$here/recipe.py" "$3" "$scratch" "$4" probe
        cp "$scratch"/out/{upstream-probe,libpar.so} "$folder"
    fi
    mkdir -p "$folder/$name"
    cp "$scratch/out/libupstream.so" "$folder/$name/"
    rm -rf "$scratch"
}

# judge NAME WHAT EXPRESSION: of the object that was printed
judge() {
    python3 - "$@" <<'END'
import json, sys

folder, what, expression, text = sys.argv[1:5]
try:
    found = json.loads(text)
except ValueError:
    found = {"message": text[-300:] or "no output"}
good = bool(found.get("elements")) and eval(expression, {}, found)
times = ", ".join("%s %.2f us%s" % (r["name"], r["us"], r["algorithm"] and " (%s)" % r["algorithm"] or "") for r in found.get("rivals", ()) if r["us"])
print("%-4s %-8s %s: world %s, %s calls, %s elements, %s wrong, %s untouched, %s s%s%s" % (
    "ok" if good else "FAIL", what, folder, *(found.get(k) for k in ("world", "calls", "elements", "wrong", "untouched", "seconds")),
    "; " + times if times else "", "; " + found["refusal"] if found.get("refusal") else ""), flush=True)
if found.get("message"):
    print("     ", found["message"], flush=True)
sys.exit(not good)
END
}

run() {
    local folder=$1 bad=0 one out rights='code == 0 and wrong == 0 and (world == 2 or "SGLANG_PCIE_UPSTREAM_LIMITS" in refusal)'
    local nccl=()
    [ $# -lt 2 ] || nccl=(--nccl "$2")
    for one in "$folder"/stock-*/; do
        out=$(LD_LIBRARY_PATH=$one "$folder/upstream-probe" --defect --world 4 --virtual --limit 30 || true)
        judge "$(basename "$one")" stock 'code == 0 and untouched == elements' "$out" || bad=1
    done
    for one in "$folder"/patched-*/; do
        out=$(LD_LIBRARY_PATH=$one "$folder/upstream-probe" --world 4 --virtual --limit 40 || true)
        judge "$(basename "$one")" virtual "$rights" "$out" || bad=1
        out=$(LD_LIBRARY_PATH=$one "$folder/upstream-probe" --limit 40 "${nccl[@]}" || true)
        judge "$(basename "$one")" process "$rights and mode == 'process'" "$out" || bad=1
    done
    return $bad
}

"$@"
