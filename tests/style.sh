#!/usr/bin/env bash
# C sources as clang-format writes them, shell scripts as shellcheck likes them. The kernels and their tests keep columns by hand.
set -euo pipefail
cd "$(dirname "$0")/.."

find base build cli patcher verify tests -path tests/emulator -prune -o -path tests/libpar -prune -o -name '*.[ch]' -print0 |
    xargs -0 clang-format --dry-run --Werror
shellcheck --severity=warning scripts/*.sh tests/*.sh tests/*/*.sh .ci/run
