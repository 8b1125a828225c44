#!/usr/bin/env bash
# The main job on a real SGLang wheel, in a scratch environment: identify, plan, apply, revert, and prove that nothing is left.
#
#   scripts/demo.sh [SGLANG VERSION]         default 0.5.23; needs no GPU
#
# Installs what it needs (Debian packages), builds and makes a virtual environment in out/demo/, and installs the released wheel
# there without its dependencies. Where there is an nvcc, the kernels are compiled into it, too. Run it as often as you like.
set -euo pipefail
cd "$(dirname "$0")/.."

case ${1:-} in
-*)
    sed -n '4s/^# *//p' scripts/demo.sh >&2
    exit 2
    ;;
esac
version=${1:-0.5.23}
venv=out/demo/sglang-$version
python=$venv/bin/python

say() { printf '\n\033[1m== %s\033[0m\n' "$*"; }
run() { printf '\033[1m$ %s\033[0m\n' "$*"; "$@"; }

# Everything below the environment that is not bytecode: name, mode and content.
fingerprint() {
    (cd "$venv" && {
        find . -name __pycache__ -prune -o -printf '%p %m %y\n' | LC_ALL=C sort
        find . -name __pycache__ -prune -o -type f -print0 | LC_ALL=C sort -z | xargs -0 sha256sum
    }) | sha256sum
}

say "Packages and build"
scripts/install-deps.sh
cmake -S . -B out/demo/build -DSP_TESTS=OFF -DSP_GPU=OFF >/dev/null
cmake --build out/demo/build -j "$(nproc)" | tail -n 1
sgl_pcie=out/demo/build/bin/sgl-pcie

say "A stock SGLang $version"
if [ ! -x "$python" ]; then
    python3 -m venv "$venv"
fi
"$python" -m pip install --quiet --disable-pip-version-check --no-deps --no-compile "sglang==$version"
run "$sgl_pcie" recover --quiet --python "$python" # of a demo that was killed
run "$sgl_pcie" revert --quiet --python "$python"
before=$(fingerprint)

run "$sgl_pcie" status --python "$python"

say "What would change"
run "$sgl_pcie" apply --dry-run --diff --python "$python"

say "Apply"
run "$sgl_pcie" apply --python "$python"
run "$sgl_pcie" status --python "$python"
run "$python" -m pip list --disable-pip-version-check

if command -v nvcc >/dev/null; then
    say "Build the kernels into it, for one architecture"
    run "$sgl_pcie" build --arch sm_90 --python "$python"
fi

say "Revert"
run "$sgl_pcie" revert --python "$python"
after=$(fingerprint)

if [ "$before" != "$after" ]; then
    echo "sgl-pcie: the environment differs from what it was before" >&2
    exit 1
fi
say "Every file, mode and byte is as it was before: ${after%% *}"
