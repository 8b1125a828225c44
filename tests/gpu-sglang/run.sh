#!/usr/bin/env bash
# Real SGLang on a machine with GPUs, from a pack made by pack.sh: what groups do, how fast the model decodes, a server.
#
#   run.sh PACK STEP...      PACK: folder of the unpacked pack; results go to PACK/out/
#
#   prepare       compile what SGLang compiles at first use (10 s on many cores)
#   groups        groups.py for every release in the pack, two ranks each and four ($WORLDS); and with another transport, a profile,
#                 another libpar.so on one rank, the flag unset, and 1 without a verdict. Several at a time, on the same GPUs.
#   decode        decode.py: our transports, SGLang's own custom all-reduce, NCCL with and without P2P, no all-reduce, in one process
#   piecewise     decode.py: host transport with SGLang's piecewise CUDA graphs on
#   killed        decode.py: the last rank is killed while it decodes; outside the server, where nothing but the all-reduce ties the ranks together
#   stock         `python -m sgl_pcie.stock`: SGLang's own custom all-reduce by itself
#   upstream      upstream.py: SGLang's own on libupstream.so (`sgl-pcie build --upstream` into PACK/site) beside the kernel package's
#   upstream-decode   decode.py: the same
#   server        server.py: launch_server under load ($SECONDS_OF_LOAD, default 300), against NCCL, and with a rank killed; server-load and
#                 server-killed are its two parts
#   measured      ranks that share a GPU: groups and decode by a profile that bench's functions make of a measurement here (measured.py)
#   proved        two GPUs or more: `sgl-pcie verify` and `bench`, then groups and decode with the flag at 1, by that verdict and profile
#
# $GROUPS_ONLY: names of groups, the others are left out. $TP: ranks of decode and server, default four. $LAYERS: of decode's model, default all.
# Where there are fewer GPUs than ranks, ranks share them (shared.py), under MPS: that shows function, and nothing about speed.
set -u
pack=$(realpath "$1")
shift
here=$(cd "$(dirname "$0")" && pwd)
out=$pack/out
begun=$SECONDS
mkdir -p "$out"
gpus=$(nvidia-smi -L | wc -l)
tp=${TP:-4}

export PYTHONPATH=$pack/site:$pack/stubs TVM_FFI_CACHE_DIR=$pack/tvm-cache SGLANG_IS_FLASHINFER_AVAILABLE=false
export HF_HUB_OFFLINE=1 TRANSFORMERS_OFFLINE=1 PYTHONUNBUFFERED=1 TOKENIZERS_PARALLELISM=false OMP_NUM_THREADS=4
ldconfig -p | grep -q libnuma.so.1 || export LD_LIBRARY_PATH=$pack/lib:${LD_LIBRARY_PATH:-}

say() { echo "[$((SECONDS - begun)) s] $*"; }

# --- ranks that share a GPU -------------------------------------------------------------------------------------------

mps=""

# share WORLD [turns]: what the programs are told before so many ranks start. "turns": no MPS, which the killing of one of
# its clients ends for all of them, by a fault that comes before ours.
share() {
    unset RANKS_SHARE_GPUS
    [ "$1" -gt "$gpus" ] || return 0
    # SGLang compares the ranks' free memory, which is one and the same memory here, at different times.
    export RANKS_SHARE_GPUS=$1 SGLANG_ENABLE_TP_MEMORY_INBALANCE_CHECK=0
    say "$1 ranks share $gpus GPU(s): function, not speed"
    [ -z "${2:-}" ] || unset CUDA_MPS_PIPE_DIRECTORY CUDA_MPS_LOG_DIRECTORY
    [[ -z ${2:-} && -z ${CUDA_MPS_PIPE_DIRECTORY:-} ]] || return 0 # somebody's is there
    mps=$(mktemp -d /tmp/mps.XXXXXX)
    export CUDA_MPS_PIPE_DIRECTORY=$mps CUDA_MPS_LOG_DIRECTORY=$mps
    nvidia-cuda-mps-control -d || say "no MPS: the ranks' kernels take turns"
}

unshare() {
    [ -n "$mps" ] || return 0
    echo "quit -t 5" | timeout 15 nvidia-cuda-mps-control >/dev/null
    cp "$mps/server.log" "$out/mps-server.log" 2>/dev/null
    rm -rf "$mps"
    mps=""
    unset CUDA_MPS_PIPE_DIRECTORY CUDA_MPS_LOG_DIRECTORY
}
trap unshare EXIT

# --- steps ------------------------------------------------------------------------------------------------------------

# limited SECONDS LOG COMMAND...: in a session of its own, ended at the limit
limited() {
    local limit=$1 log=$2 pid code
    shift 2
    setsid timeout --signal=TERM --kill-after=5 "$limit" "$@" >"$log" 2>&1 &
    pid=$!
    wait $pid
    code=$?
    kill -KILL -- -$pid 2>/dev/null
    say "exit $code: $(basename "$log")"
    return $code
}

prepare() {
    python3 -m compileall -q -j 16 "$pack/site/sglang" "$pack/site/transformers" >/dev/null 2>&1 &
    local name pids=()
    for name in "activation $tp" "rope $tp" "norm $tp" "kvcache $tp" "kvcache 2" "clamp $tp"; do
        # shellcheck disable=SC2086
        CUDA_VISIBLE_DEVICES=0 timeout 90 python3 "$here/prepare.py" $name >"$out/prepare-${name// /-}.log" 2>&1 &
        pids+=($!)
    done
    wait "${pids[@]}"
    tail -qn 1 "$out"/prepare-*.log
}

# --- groups -----------------------------------------------------------------------------------------------------------

# group NAME WORLD PORT RELEASE ARGUMENT...: starts groups.py
group() {
    local name=$1 world=$2 port=$3 site=$pack/releases/$4
    [[ -z ${GROUPS_ONLY:-} || " $GROUPS_ONLY " == *" $name "* ]] || return 0
    [ "$4" = 0.5.11 ] && site=$pack/site
    shift 4
    [ $(((${#started[@]} + 1) * world)) -le "$at_once" ] || finish
    started+=("$name-w$world")
    limited $((${GROUPS_LIMIT:-100} + 60 + 40 * ${#started[@]})) "$out/groups-$name-w$world.log" python3 "$here/groups.py" --site "$site" --world "$world" --port "$port" \
        --timeout $((${GROUPS_LIMIT:-100} - 5)) --out "$out/groups.jsonl" --name "$name" "$@" &
    waiting+=($!)
}

finish() {
    wait "${waiting[@]}"
    local name log
    for name in "${started[@]}"; do
        log=$out/groups-$name.log
        echo "$name: $(grep -h -o '"ok": [a-z]*' "$log" || tail -n 5 "$log" | cut -c1-500)"
        grep -h -o '"failed": \["[^]]*\]' "$log" | cut -c1-900
        grep -h -o '"log": \[[^]]*\]' "$log" | cut -c1-700
    done
    waiting=() started=()
}

unproved="nothing was proved"
at_once=24
waiting=() started=()

groups_of() {
    local world=$1 site=0.5.11
    share "$world"
    # So many processes at a time: those of one GPU take turns, and a kernel that waits holds its turn. Where ranks share
    # GPUs one group at a time uses them (groups.py), while the others import.
    at_once=$((${RANKS_SHARE_GPUS:-0} ? 24 : 5 * gpus))
    # What 0.5.23 has itself, V2, is compiled at first use; without it, V1.
    GROUPS_LIMIT=${GROUPS_LIMIT:-200} group 0.5.23 "$world" 29611 0.5.23 --expect ours --log "$unproved"
    SGLANG_OPT_USE_CUSTOM_ALL_REDUCE_V2=0 group 0.5.23-v1 "$world" 29616 0.5.23 --expect ours --log "$unproved"
    group 0.5.11 "$world" 29601 0.5.11 --expect ours --log "$unproved"
    group 0.5.9 "$world" 29621 0.5.9 --expect ours --log "$unproved"
    group 0.5.5 "$world" 29631 0.5.5 --expect ours --log "$unproved"
    group peer "$world" 29641 $site --backend peer --expect ours --log "push to"
    group profile "$world" 29651 $site --profile --expect ours --log "as measured here"
    group other-libpar "$world" 29661 $site --other "$pack/other" --expect stock --log "have another libpar.so"
    group unset "$world" 29671 $site --flag "" --expect stock
    group no-verdict "$world" 29681 $site --flag 1 --expect stock --log "no verdict"
    if [ -n "${RANKS_SHARE_GPUS:-}" ]; then
        group as-is "$world" 29691 $site --as-is --expect stock --log "$([ "$gpus" -lt "$world" ] && echo "ours is for 2 to 8 GPUs")"
    else
        group auto "$world" 29691 $site --backend auto --expect stock --log "NVLink joins all these GPUs"
    fi
    finish
    unshare
}

measured() {
    local world
    for world in ${WORLDS:-2 4}; do
        share "$world"
        export SGL_PCIE_STATE=$out/measured-w$world
        LD_LIBRARY_PATH=$pack/bin/lib:${LD_LIBRARY_PATH:-} limited 90 "$out/measured-w$world.log" python3 "$here/measured.py" --pack "$pack" \
            --state "$SGL_PCIE_STATE"
        grep -h MEASURED "$out/measured-w$world.log" || tail -n 5 "$out/measured-w$world.log"
        group measured "$world" 29721 0.5.11 --expect ours --log "(as measured here, $unproved)"
        group measured-peer "$world" 29731 0.5.11 --backend peer --expect ours --log "(as measured here, $unproved)"
        finish
        [ "$world" -ne "$tp" ] || decode measured host "${DECODE_LIMIT:-240}" --disable-piecewise-cuda-graph
        unset SGL_PCIE_STATE
        unshare
    done
}

# An interpreter that has the pack's SGLang, as a user's has: bench asks it for SGLang's own all-reduce.
environment() {
    local purelib='import sysconfig; print(sysconfig.get_path("purelib"))'
    [ -x "$pack/env/bin/python" ] || python3 -m venv --without-pip "$pack/env"
    printf '%s\n' "$pack/site" "$pack/stubs" "$(python3 -c "$purelib")" >"$("$pack/env/bin/python" -c "$purelib")/pack.pth"
}

# Two GPUs: by a verdict and a profile that were made here. NVLink machines name a backend, or "auto" leaves them to stock.
proved() {
    export SGL_PCIE_STATE=$out/state
    unset RANKS_SHARE_GPUS
    environment
    LD_LIBRARY_PATH=$pack/bin/lib:${LD_LIBRARY_PATH:-} "$pack/bin/sgl-pcie" verify --python "$pack/env/bin/python" >"$out/verify.log" 2>&1
    say "exit $?: verify: $(tail -n 1 "$out/verify.log" | cut -c1-300)"
    LD_LIBRARY_PATH=$pack/bin/lib:${LD_LIBRARY_PATH:-} "$pack/bin/sgl-pcie" bench --python "$pack/env/bin/python" >"$out/bench.log" 2>&1
    say "exit $?: bench: $(tail -n 1 "$out/bench.log" | cut -c1-300)"
    local measured="(as measured here)" # without "nothing was proved"
    group proved-host 2 29701 0.5.11 --flag 1 --expect ours --log "$measured"
    group proved-peer 2 29711 0.5.11 --flag 1 --backend peer --expect ours --log "$measured"
    finish
    TP=2 FLAG=1 decode proved "${MODES:-host,none}" "${DECODE_LIMIT:-240}" --disable-piecewise-cuda-graph
    unset SGL_PCIE_STATE
}

# --- decode -----------------------------------------------------------------------------------------------------------

# decode NAME MODES LIMIT ARGUMENT...
decode() {
    local name=$1 modes=$2 limit=$3 log=$out/decode-$1.log tp=${TP:-$tp} model=() tokens=256
    shift 3
    share "$tp" "${TURNS:-}"
    # What is not ours goes through sockets where ranks share a GPU, and a prompt's messages are large.
    [ -z "${RANKS_SHARE_GPUS:-}" ] || tokens=16
    [ -z "${LAYERS:-}" ] || model=(--json-model-override-args "{\"num_hidden_layers\": $LAYERS}")
    SGLANG_FORCE_CUSTOM_AR_PCIE=${FLAG:-unsafe} SGLANG_PCIE_AR_BACKEND=${BACKEND:-host} DECODE_NAME=$name DECODE_MODES=$modes DECODE_OUT=$out/decode.jsonl \
        limited "$limit" "$log" python3 "$here/decode.py" \
        --model-path "$pack/model" --load-format dummy --tp "$tp" --dtype bfloat16 --attention-backend triton \
        --sampling-backend pytorch --disable-flashinfer-autotune --enforce-disable-flashinfer-allreduce-fusion \
        --context-length 4096 --max-running-requests 32 --max-total-tokens 20000 --cuda-graph-bs 1 4 16 \
        --batch-size 1 4 16 --input-len $tokens --output-len 64 "${model[@]}" "$@"
    unshare
    grep -h -E "PCIe all-reduce|all-reduce, by|stock all-reduce" "$log" | sed 's/^\[[^]]*\] *//' | sort | uniq -c | cut -c1-400 | head -n 6
    grep -q '"done"\|"killed"' "$log" || { grep -n -m 3 -A 12 Traceback "$log" | cut -c1-300; tail -c 1500 "$log"; }
    cat "$out"/decode.jsonl.nccl-no-p2p.* 2>/dev/null | grep -o "via [A-Z]*/[A-Za-z/]*" | sort | uniq -c
}

# --- server -----------------------------------------------------------------------------------------------------------

# server NAME PART...
server() {
    local name=$1
    shift
    limited "${SERVER_LIMIT:-$((${SECONDS_OF_LOAD:-300} + 250))}" "$out/$name.log" python3 "$here/server.py" --pack "$pack" --tp "$tp" \
        --seconds "${SECONDS_OF_LOAD:-300}" --out "$out/server.jsonl" --parts "$@"
    tail -n 1 "$out/$name.log" | cut -c1-5000
}

server_load() {
    share "$tp"
    server server-load load
    unshare
}

server_killed() {
    share "$tp" turns
    server server-killed killed --port 31100
}

for step in "$@"; do
    case $step in
    prepare) prepare ;;
    groups) for world in ${WORLDS:-2 4}; do groups_of "$world"; done ;;
    decode)
        # With ranks that share a GPU, V1 takes two at most (no NVLink), and NCCL goes over sockets.
        modes=host,peer,v1,none,nccl,nccl-no-p2p
        [ "$tp" -le "$gpus" ] || modes=host,peer,none
        decode decode "${MODES:-$modes}" "${DECODE_LIMIT:-240}" --disable-piecewise-cuda-graph
        ;;
    piecewise)
        sizes=(64 256 1024 4096)
        [ "$tp" -le "$gpus" ] || sizes=(16 64 256)
        DECODE_REPEATS=2 decode piecewise host "${PIECEWISE_LIMIT:-120}" --piecewise-cuda-graph-tokens "${sizes[@]}"
        grep -h '"served"' "$out/decode.jsonl" | tail -n 1
        ;;
    killed)
        rm -f "$out/decode.jsonl.killed"
        LAYERS=${LAYERS:-8} TURNS=turns DECODE_KILL=40 decode killed host 100 --disable-piecewise-cuda-graph
        grep -h '"killed"\|"survived"' "$out/decode.jsonl" | tail -n 3
        grep -h "sgl-pcie: rank" "$out/decode-killed.log" | head -n 4
        ;;
    stock)
        limited 70 "$out/stock-v1.log" sh -c "python3 -m sgl_pcie.stock --world 2 --budget 15 --limit 60 >$out/stock-v1.jsonl"
        tail -n 2 "$out/stock-v1.log" | cut -c1-300
        ;;
    upstream)
        for world in ${WORLDS:-2 4}; do
            share "$world"
            limited 100 "$out/upstream-w$world.log" python3 "$here/upstream.py" --site "$pack/site" --world "$world" --timeout 90 --out "$out/upstream.jsonl"
            grep -h -o '"prepare": .*' "$out/upstream-w$world.log" | cut -c1-1200
            grep -q '"prepare"' "$out/upstream-w$world.log" || tail -n 5 "$out/upstream-w$world.log" | cut -c1-1500
            unshare
        done
        ;;
    upstream-decode)
        TP=2 BACKEND=upstream decode upstream upstream,v1,none "${DECODE_LIMIT:-240}" --disable-piecewise-cuda-graph
        [ "$tp" -eq 2 ] || BACKEND=upstream decode "upstream-tp$tp" upstream,none "${DECODE_LIMIT:-240}" --disable-piecewise-cuda-graph
        ;;
    measured) measured ;;
    proved) proved ;;
    server) if [ "$tp" -gt "$gpus" ]; then server_load && server_killed; else server server load killed; fi ;;
    server-load) server_load ;;
    server-killed) server_killed ;;
    *) echo "run.sh: no step '$step'" >&2 ;;
    esac
    say "$step"
done
[ -s "$out/decode.jsonl" ] && python3 "$here/table.py" "$out/decode.jsonl"
say "end"
