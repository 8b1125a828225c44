#!/usr/bin/env bash
# C sources as clang-format writes them, and without what .clang-tidy knows; shell scripts as shellcheck likes them. The
# kernels and their tests keep columns by hand.
set -euo pipefail
cd "$(dirname "$0")/.."

find base build cli patcher verify tests -path tests/emulator -prune -o -path tests/libpar -prune -o -name '*.[ch]' -print0 |
    xargs -0 clang-format --dry-run --Werror
shellcheck --severity=warning scripts/*.sh tests/*.sh tests/*/*.sh .ci/run

tidy() {
    # shellcheck disable=SC2046 # words
    clang-tidy --quiet "$@" -- -std=c11 -D_GNU_SOURCE '-DSP_VERSION=""' -I. $(pkg-config --cflags libgit2 jansson libelf)
}
export -f tidy
find base build cli patcher verify -name '*.c' -print0 | xargs -0 -P "$(nproc)" -n 12 bash -c 'tidy "$@"' tidy
