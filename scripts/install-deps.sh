#!/usr/bin/env bash
# Install the Debian packages that sgl-pcie needs: to build and run; with --test also what its tests need.
set -euo pipefail

run="build-essential cmake pkg-config libgit2-dev libjansson-dev libssl-dev libelf-dev python3 python3-venv git unzip"
test="libcmocka-dev python3-jsonschema clang clang-format libclang-rt-14-dev valgrind strace shellcheck man-db spin"

packages=$run
[ "${1:-}" = --test ] && packages="$run $test"

missing=()
for package in $packages; do
    dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || missing+=("$package")
done
[ ${#missing[@]} -eq 0 ] && exit 0

if [ "$(id -u)" -ne 0 ]; then
    echo "sgl-pcie: these Debian packages are missing: ${missing[*]}" >&2
    echo "  next: sudo apt-get install -y ${missing[*]}" >&2
    exit 5
fi
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
