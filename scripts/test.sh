#!/usr/bin/env bash
# Build everything and run all tests: warnings as errors, then the C tests once more under ASan and UBSan, then fuzzers.
#
#   scripts/test.sh [CTEST ARGUMENT...]      e.g. scripts/test.sh -R golden
#
# Released SGLang wheels are downloaded once into ${XDG_CACHE_HOME:-~/.cache}/sgl-pcie/wheels ($SGL_PCIE_WHEELS).
# With SGL_PCIE_CI=1 the long runs (all fault points, the emulator's full campaign) are made as well.
set -euo pipefail
cd "$(dirname "$0")/.."

scripts/install-deps.sh --test
jobs=$(nproc)

cmake -S . -B out -DSP_WERROR=ON >/dev/null
cmake --build out -j "$jobs"
cmake -S . -B out-asan -DSP_WERROR=ON -DSP_SANITIZE=ON -DSP_GPU=OFF >/dev/null
cmake --build out-asan -j "$jobs"
CC=clang cmake -S . -B out-fuzz -DSP_FUZZ=ON -DSP_GPU=OFF >/dev/null
cmake --build out-fuzz -j "$jobs" --target fuzzers

# One ctest run over all of it, so that its closing lines count every test.
ctest --test-dir out --output-on-failure --no-tests=error -j "$jobs" "$@"
