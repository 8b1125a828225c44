#!/usr/bin/env bash
# Build everything and run all tests: warnings as errors, then the C tests once more under ASan and UBSan, then fuzzers.
#
#   scripts/test.sh [CTEST ARGUMENT...]      e.g. scripts/test.sh -R golden
#
# Released SGLang wheels are downloaded once into ${XDG_CACHE_HOME:-~/.cache}/sgl-pcie/wheels ($SGL_PCIE_WHEELS).
set -euo pipefail
cd "$(dirname "$0")/.."

scripts/install-deps.sh --test
PATH=$PATH:/usr/local/cuda/bin:${XDG_CACHE_HOME:-$HOME/.cache}/sgl-pcie/cuda/bin # where an nvcc may be

build() { # build FOLDER OPTION...
    local folder=$1
    shift
    cmake -S . -B "$folder" -DSP_TESTS=ON -DSP_WERROR=ON "$@" >/dev/null
    cmake --build "$folder" -j "$(nproc)" | grep -v -e '^\[' -e 'Consolidate' || true
    cmake --build "$folder" >/dev/null # its exit status counts
}
run() { # run FOLDER ARGUMENT...: the tests of one build
    local folder=$1
    shift
    ctest --test-dir "$folder" --output-on-failure --no-tests=error -j "$(nproc)" "$@"
}

build out
if [ $# -gt 0 ]; then
    run out "$@"
    exit
fi
build out-asan -DSP_SANITIZE=ON -DSP_GPU=OFF
build out-fuzz -DCMAKE_C_COMPILER=clang -DSP_FUZZ=ON -DSP_GPU=OFF

echo "== under the address and undefined-behaviour sanitizers"
run out-asan -R '^(base|cli|patcher|patches.checkout|build.units|gpu|communicator|machine|doctor|ladder.rates|bench|verdict|page.page)'
echo "== fuzzers"
run out-fuzz -L fuzz
echo "== all tests"
run out
