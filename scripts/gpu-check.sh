#!/bin/bash
# The kernels on real GPUs: builds libpar.so and sgl-pcie-gpu from this checkout and runs what they must show.
# Needs nvcc, a C compiler and python3; NCCL is taken from python3's nvidia-nccl or the linker's path.
#
#   scripts/gpu-check.sh [-d DIR] [-t SECONDS] [-r RANKS] STEP...
#     -d   folder for binaries and logs (default out/gpu-check)
#     -t   time limit of a step (default 300)
#     -r   most ranks, a process each (default: as many as GPUs, at least 2). More than there are GPUs share them, at the same time under MPS
#          (NVIDIA's multi-process service, which this script starts and ends), in turn in the steps where processes are killed.
#          Times, then, are of kernels that share a GPU, and NCCL does not run.
#     ARCH in the environment: architectures to build for, as 90 (default: those of the GPUs)
#   Steps: build  machine  quick (stops the script when it fails)  smoke  soak[=CALLS]  faults  sanitizer  perf-host  perf-peer  tune-host  tune-peer
#          run:ARGUMENTS (sgl-pcie-gpu with these; quote it)
#
# Prints a compact account; the full output of a step is in DIR/STEP.log. Exits with the worst result.
set -u
cd "$(dirname "$0")/.." || exit

usage() {
    sed -n '5,13s/^# //p' scripts/gpu-check.sh >&2
    exit 2
}

dir=out/gpu-check limit=300 worst=0 ranks=0
while getopts d:t:r: option; do
    case $option in
    d) dir=$OPTARG ;;
    t) limit=$OPTARG ;;
    r) ranks=$OPTARG ;;
    *) usage ;;
    esac
done
shift $((OPTIND - 1))
[ $# -gt 0 ] || usage
mkdir -p "$dir"
program=$dir/sgl-pcie-gpu
present=$(nvidia-smi -L 2>/dev/null | grep -c '^GPU')
[ "$ranks" -eq 0 ] && ranks=$((present > 2 ? present : 2))
gpus=$(for ((r = 0; r < ranks; r++)); do echo $((present ? r % present : r)); done | paste -sd,)
worlds=2$([ "$ranks" -ge 4 ] && echo ,4)

# The sources of libpar.so or of sgl-pcie-gpu that end in .c or .cu, from the one list that there is.
sources() {
    python3 - "$1" "$2" <<'END'
import json, sys
recipe = json.load(open("kernels/sources.json"))
program = next(o for o in recipe["others"] if o["name"] == "sgl-pcie-gpu")
print(*(recipe if sys.argv[1] == "library" else program)["sources" if sys.argv[2] == "c" else "kernels"])
END
}

# Compile what is in the list into DIR/o/LIBRARY-OR-PROGRAM, all at once.
compile() {
    local source objects=$dir/o/$1
    mkdir -p "$objects"
    for source in $(sources "$1" c); do
        cc -std=c11 -D_GNU_SOURCE -O2 -fPIC -fvisibility=hidden -isystem "$cuda/include" -c "kernels/$source" \
            -o "$objects/$(basename "$source").o" &
    done
    for source in $(sources "$1" cu); do
        nvcc -c -std=c++17 -O3 -Xcompiler=-fPIC,-fvisibility=hidden,-fno-exceptions,-fno-threadsafe-statics $arch \
            "kernels/$source" -o "$objects/$(basename "$source").o" &
    done
}

build() {
    local cuda arch
    cuda=$(dirname "$(dirname "$(readlink -f "$(command -v nvcc)")")")
    arch=${ARCH:-$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader | sort -u | tr -d .)}
    arch=$(printf '%s\n' $arch | sed 's/.*/-gencode=arch=compute_&,code=sm_&/')
    rm -rf "$dir/o"
    compile library
    compile program
    wait
    cc -shared -o "$dir/libpar.so" "$dir"/o/library/*.o -Wl,--version-script=kernels/libpar.map -Wl,-soname,libpar.so \
        -Wl,-z,defs "$cuda/lib64/libcudart_static.a" -ldl -lrt -lpthread &&
    cc -o "$program" "$dir"/o/program/*.o "$dir/libpar.so" '-Wl,-rpath,$ORIGIN' "$cuda/lib64/libcudart_static.a" \
        -ldl -lrt -lpthread -lm
}

machine() {
    nvidia-smi --query-gpu=index,name,pci.bus_id,pcie.link.gen.max,pcie.link.width.max,driver_version --format=csv
    nvidia-smi topo -m | head -8
    lscpu | grep -E 'Model name|^CPU\(s\)|Socket|NUMA node\(s\)|L3'
    ulimit -l
}

# One GPU cannot have two ranks of NCCL.
nccl() {
    [ "$ranks" -gt "$present" ] && echo --no-nccl && return
    python3 -c 'import nvidia.nccl; print("--nccl", list(nvidia.nccl.__path__)[0] + "/lib/libnccl.so.2")' 2>/dev/null
}

sanitizer() {
    local tool
    for tool in memcheck synccheck; do
        compute-sanitizer --tool $tool --target-processes all --error-exitcode 1 \
            "$program" smoke --mode local --gpus 0 --world 3,8 --types bf16 --max-bytes 16K --timeout 200 --limit 280 || return 1
    done
}

# shellcheck disable=SC2046 # nccl() prints an option and its value, or nothing
step() {
    case $1 in
    build) build ;;
    machine) machine ;;
    quick) "$program" smoke --gpus "$gpus" --types bf16 --max-bytes 1M --mode process ;;
    smoke) "$program" smoke --gpus "$gpus" ;;
    soak) step soak=1000000 ;;
    soak=*) "$program" smoke --gpus "$gpus" --soak "${1#soak=}" --max-bytes 1M --types bf16 --mode process --world "$ranks" ;;
    faults) "$program" smoke --gpus "$gpus" --faults ;;
    sanitizer) sanitizer ;;
    perf-host) "$program" perf --gpus "$gpus" --transport host --world $worlds --model $(nccl) ;;
    perf-peer) "$program" perf --gpus "$gpus" --transport peer --world $worlds --model $(nccl) ;;
    tune-host | tune-peer)
        "$program" perf --gpus "$gpus" --transport "${1#tune-}" --world $worlds --no-nccl --each --grid --calls 50 --iterations 10 \
            --sizes 4K,16K,42K,64K,128K,256K,512K,1M,4M --lanes 0,2,4,8,16,32,64 --threads 0,64,128,256,512
        ;;
    run:*) "$program" ${1#run:} ;;
    *) echo "no step '$1'"; return 2 ;;
    esac
}

# A step has its own process group and time limit, hence a shell of its own, which sees what is exported.
export -f step sources compile build machine nccl sanitizer
export dir program present ranks gpus worlds

if [ "$ranks" -gt "$present" ] && [ "$present" -gt 0 ]; then
    mps=$(mktemp -d)
    trap 'echo quit | CUDA_MPS_PIPE_DIRECTORY=$mps nvidia-cuda-mps-control >"$mps/quit.log"; rm -rf "$mps"' EXIT
    CUDA_MPS_PIPE_DIRECTORY=$mps CUDA_MPS_LOG_DIRECTORY=$mps nvidia-cuda-mps-control -d || exit
fi

for s in "$@"; do
    log=$dir/$(echo "$s" | tr -c 'a-z0-9=\n-' _ | cut -c1-40).log
    begin=$SECONDS
    case $s in
    faults | sanitizer) unset CUDA_MPS_PIPE_DIRECTORY ;; # a process that dies takes the others of an MPS server with it
    *) [ -n "${mps:-}" ] && export CUDA_MPS_PIPE_DIRECTORY=$mps ;;
    esac
    timeout -k 10 "$limit" bash -c 'step "$1"' - "$s" >"$log" 2>&1
    rc=$?
    [ $rc -gt $worst ] && worst=$rc
    printf "== %s: exit %d, %d s\n" "$s" $rc $((SECONDS - begin))
    cat "$log"
    [ "$s" = quick ] && [ $rc -ne 0 ] && break
done
exit $worst
