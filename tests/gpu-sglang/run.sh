#!/usr/bin/env bash
# Real SGLang on a machine with GPUs, from a pack made by pack.sh: what groups do, and how fast the model decodes.
#
#   run.sh PACK STEP...      PACK: folder of the unpacked pack; results go to PACK/out/
#
#   prepare       compile what SGLang compiles at first use (a minute on many cores)
#   groups4       groups.py for every release in the pack, four ranks, flag unsafe
#   groups2       the same with two ranks; and with the flag unset, and 1 without a verdict
#   host          decode.py: host transport against NCCL without P2P, and no all-reduce
#   peer          decode.py: peer transport against NCCL and SGLang's own custom all-reduce
#   piecewise     decode.py: host transport with SGLang's piecewise CUDA graphs on
set -u
pack=$(realpath "$1")
shift
here=$(cd "$(dirname "$0")" && pwd)
out=$pack/out
begun=$SECONDS
mkdir -p "$out"

export PYTHONPATH=$pack/site:$pack/stubs TVM_FFI_CACHE_DIR=$pack/tvm-cache SGLANG_IS_FLASHINFER_AVAILABLE=false
export HF_HUB_OFFLINE=1 TRANSFORMERS_OFFLINE=1 PYTHONUNBUFFERED=1 TOKENIZERS_PARALLELISM=false OMP_NUM_THREADS=4
ldconfig -p | grep -q libnuma.so.1 || export LD_LIBRARY_PATH=$pack/lib:${LD_LIBRARY_PATH:-}

say() { echo "[$((SECONDS - begun)) s] $*"; }

# limited SECONDS LOG COMMAND...: in a process group of its own, ended at the limit
limited() {
    local limit=$1 log=$2 pid code
    shift 2
    setsid timeout --signal=TERM --kill-after=5 "$limit" "$@" >"$log" 2>&1 &
    pid=$!
    wait $pid
    code=$?
    kill -KILL -- -$pid 2>/dev/null
    say "exit $code: $log"
    return $code
}

prepare() {
    python3 -m compileall -q -j 24 "$pack/site/sglang" "$pack/site/transformers" >/dev/null 2>&1 &
    local name pids=()
    for name in activation rope norm kvcache clamp; do
        CUDA_VISIBLE_DEVICES=0 python3 "$here/prepare.py" $name >"$out/prepare-$name.log" 2>&1 &
        pids+=($!)
    done
    wait "${pids[@]}"
    tail -qn 1 "$out"/prepare-*.log
}

# one SITE NAME WORLD FLAG BACKEND EXPECT PORT
one() {
    local log=$out/groups-$2-w$3-${4:-unset}.log
    PYTHONPATH=$PYTHONPATH limited "${GROUPS_LIMIT:-120}" "$log" python3 "$here/groups.py" --site "$1" --world "$3" --flag "$4" --backend "$5" \
        --expect "$6" --port "$7" --timeout $((${GROUPS_LIMIT:-120} - 5)) --out "$out/groups.jsonl"
    grep -h -o '"ok": [a-z]*' "$log" || tail -n 5 "$log"
    grep -h -o '"failed": \[[^]]*\]' "$log" | cut -c1-1500
    grep -h -o '"log": \[[^]]*\]' "$log" | cut -c1-600
}

site_of() { if [ "$1" = 0.5.11 ]; then echo "$pack/site"; else echo "$pack/releases/$1"; fi; }

# Groups of all four GPUs.
groups4() {
    local release
    for release in 0.5.11 0.5.5 0.5.9 0.5.23; do
        one "$(site_of $release)" $release 4 unsafe host ours 29601
    done
    one "$(site_of 0.5.11)" 0.5.11-peer 4 unsafe peer ours 29602
}

# Groups of two; SGLang's own custom all-reduce is there, too.
groups2() {
    local release
    for release in 0.5.11 0.5.23 0.5.9 0.5.5; do
        one "$(site_of $release)" $release 2 unsafe host ours 29603
    done
    one "$(site_of 0.5.11)" 0.5.11-peer 2 unsafe peer ours 29603
    one "$(site_of 0.5.11)" 0.5.11 2 "" host stock 29604
    one "$(site_of 0.5.11)" 0.5.11-verdict 2 1 host stock 29604
}

# decode NAME MODES LIMIT ARGUMENT...
decode() {
    local name=$1 modes=$2 limit=$3 log=$out/decode-$1.log
    shift 3
    DECODE_NAME=$name DECODE_MODES=$modes DECODE_OUT=$out/decode.jsonl limited "$limit" "$log" python3 "$here/decode.py" \
        --model-path "$pack/model" --load-format dummy --tp "${TP:-4}" --dtype bfloat16 --attention-backend triton \
        --sampling-backend pytorch --disable-flashinfer-autotune --enforce-disable-flashinfer-allreduce-fusion \
        --context-length 4096 --max-running-requests 32 --max-total-tokens 20000 --cuda-graph-bs 1 4 16 \
        --batch-size 1 4 16 --input-len 256 --output-len 96 "$@"
    grep -h -E "sgl_pcie|PCIe all-reduce|all-reduce, by|stock all-reduce" "$log" | sort | uniq -c | head -n 8
    grep -h '"done"' "$log" || tail -c 3000 "$log"
}

for step in "$@"; do
    case $step in
    prepare) prepare ;;
    groups4) groups4 ;;
    groups2) groups2 ;;
    host)
        SGLANG_FORCE_CUSTOM_AR_PCIE=unsafe SGLANG_PCIE_AR_BACKEND=host NCCL_P2P_DISABLE=1 \
            decode host asis,nccl,none 200 --disable-piecewise-cuda-graph
        ;;
    peer)
        SGLANG_FORCE_CUSTOM_AR_PCIE=unsafe SGLANG_PCIE_AR_BACKEND=peer \
            decode peer asis,v1,nccl,none 200 --disable-piecewise-cuda-graph
        ;;
    piecewise)
        [ $((SECONDS - begun)) -lt "${PIECEWISE_UNTIL:-100000}" ] || continue
        SGLANG_FORCE_CUSTOM_AR_PCIE=unsafe SGLANG_PCIE_AR_BACKEND=host NCCL_P2P_DISABLE=1 DECODE_REPEATS=1 \
            decode piecewise asis,nccl 180
        ;;
    *) echo "run.sh: no step '$step'" >&2 ;;
    esac
done
[ -s "$out/decode.jsonl" ] && python3 "$here/table.py" "$out/decode.jsonl"
say "end"
