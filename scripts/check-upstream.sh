#!/usr/bin/env bash
# The patch set sgl-kernel and `build --upstream` on real checkouts of SGLang, without a GPU.
#
#   scripts/check-upstream.sh [-a ARCHITECTURES] FOLDER...
#
# FOLDER: a checkout, or a folder that holds some. ARCHITECTURES: as "80 90 120", the default. Needs nvcc, gcc, objcopy and python3; SGL_PCIE names the program
# (default out/bin/sgl-pcie). For every checkout: apply; stock and patched text compile without torch, with the commands of kernels/upstream/overlay.json; the
# device code of both is the same, byte for byte; the library exports its interface and nothing else; revert gives the bytes back. Exit 1 if anything is not so.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
sgl_pcie=${SGL_PCIE:-$root/out/bin/sgl-pcie}
archs="80 90 120"
if [ "${1:-}" = -a ] && [ $# -gt 2 ]; then
    archs=$2
    shift 2
fi
[ $# -gt 0 ] && [ "$1" != -a ] || { sed -n '4s/^# *//p' "$0" >&2; exit 2; }
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
bad=0

text_of() { # of a checkout, in either place
    local path
    for path in sgl-kernel/csrc/allreduce python/sglang/kernels/aot/csrc/allreduce; do
        [ ! -f "$1/$path/custom_all_reduce.cuh" ] || { echo "$path/custom_all_reduce.cuh"; return; }
    done
}

# compile TEXT FOLDER: libupstream.so of this text, as `build --upstream` makes it
compile() {
    python3 "$root/tests/upstream/recipe.py" "$1" "$2" "$archs"
    objcopy -O binary --only-section=.nv_fatbin "$2/obj/libupstream.so/upstream-overlay.cu.o" "$2/fatbin"
}

fails() {
    echo "FAIL  $1: $2"
    bad=1
}

check() {
    local checkout=$1 text work before started=$SECONDS exported
    text=$(text_of "$checkout")
    work=$(mktemp -d -p "$scratch")
    cp -p "$checkout/$text" "$work/before.cuh"
    before=$(git hash-object --no-filters "$checkout/$text")
    "$sgl_pcie" apply --quiet --source "$checkout" --set sgl-kernel || { fails "$checkout" "apply"; return; }
    compile "$work/before.cuh" "$work/stock" || fails "$checkout" "the stock text does not compile"
    compile "$checkout/$text" "$work/patched" || fails "$checkout" "the patched text does not compile"
    [ -s "$work/stock/fatbin" ] && cmp -s "$work/stock/fatbin" "$work/patched/fatbin" || fails "$checkout" "device code differs"
    ! cmp -s "$work"/{stock,patched}/obj/libupstream.so/upstream-overlay.cu.o || fails "$checkout" "host code is the same"
    exported=$(nm -D --defined-only "$work/patched/out/libupstream.so" | awk '{print $3}' | sort | tr '\n' ' ')
    [ "$exported" = "upstream_abi upstream_all_reduce upstream_dispose upstream_get_graph_buffer_ipc_meta upstream_init_custom_ar upstream_last_error upstream_meta_size upstream_register_buffer upstream_register_graph_buffers " ] ||
        fails "$checkout" "exports $exported"
    "$sgl_pcie" revert --quiet --source "$checkout" --set sgl-kernel || fails "$checkout" "revert"
    cmp -s "$work/before.cuh" "$checkout/$text" || fails "$checkout" "revert left other bytes"
    [ ! -e "$checkout/.git" ] || [ -z "$(git -C "$checkout" status --porcelain)" ] || fails "$checkout" "git sees a change"
    echo "ok    $checkout: $before, sm_${archs// /, sm_}: $(stat -c %s "$work/stock/fatbin") bytes of device code, the same; $((SECONDS - started)) s"
}

found=0
for folder in "$@"; do
    for checkout in "$folder" "$folder"/*/; do
        [ -n "$(text_of "${checkout%/}")" ] || continue
        found=$((found + 1))
        check "${checkout%/}"
    done
done
[ $found -gt 0 ] || { echo "no checkout of SGLang with its C++ sources in: $*" >&2; exit 2; }
exit $bad
