#!/usr/bin/env bash
# Install the Debian packages that sgl-pcie needs: to build and run; with --test also what its tests need, and, where there is
# no nvcc, a CUDA toolkit from PyPI (120 MB, 320 MB unpacked) in ${XDG_CACHE_HOME:-~/.cache}/sgl-pcie/cuda.
#
#   scripts/install-deps.sh [--test]
set -euo pipefail

run="build-essential cmake pkg-config libgit2-dev libjansson-dev libssl-dev libelf-dev python3 python3-dev python3-venv git unzip"
test="libcmocka-dev python3-jsonschema gnuplot-nox chromium python3-html5lib python3-pil clang clang-format clang-tidy libclang-rt-14-dev valgrind strace shellcheck man-db spin"

debian_packages() {
    local package missing=()
    for package in "$@"; do
        dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || missing+=("$package")
    done
    [ ${#missing[@]} -eq 0 ] && return

    if [ "$(id -u)" -ne 0 ]; then
        echo "sgl-pcie: these Debian packages are missing: ${missing[*]}" >&2
        echo "  next: sudo apt-get install -y ${missing[*]}" >&2
        exit 5
    fi
    export DEBIAN_FRONTEND=noninteractive
    apt-get update -qq
    apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
}

# All of one release: pip itself would take the newest of what nvcc needs, whatever nvcc that is.
cuda_toolkit() {
    local cache=${XDG_CACHE_HOME:-$HOME/.cache}/sgl-pcie version=13.0.88
    local folder=$cache/cuda-$version
    if command -v nvcc >/dev/null || [ -x /usr/local/cuda/bin/nvcc ] || [ -x "$cache/cuda/bin/nvcc" ]; then
        return
    fi
    rm -rf "$folder" "$folder.pip"
    python3 -m venv "$folder.pip"
    "$folder.pip/bin/pip" install --quiet --disable-pip-version-check --no-deps --target "$folder" \
        nvidia-cuda-nvcc==$version nvidia-nvvm==$version nvidia-cuda-crt==$version nvidia-cuda-runtime==$version
    rm -rf "$folder.pip"
    ln -s lib "$folder/nvidia/cu13/lib64"
    ln -sfn "cuda-$version/nvidia/cu13" "$cache/cuda"
}

# shellcheck disable=SC2086 # lists of words
case $* in
'') debian_packages $run ;;
--test)
    debian_packages $run $test
    cuda_toolkit
    ;;
*)
    sed -n '5s/^# *//p' "$0" >&2
    exit 2
    ;;
esac
