#!/bin/sh
# Usage: symbols.sh NM LIBRARY KERNELS: what libpar.so exports and what its device code may not contain.
set -eu
nm=$1 library=$2 kernels=$3

others=$("$nm" -D --defined-only "$library" | awk '{ print $NF }' | grep -v '^par_[a-z_]*$' || true)
[ -z "$others" ] || { echo "exported, but not par_*: $others"; exit 1; }

declared=$(grep -o '\bpar_[a-z_]*(' "$kernels/pcie_allreduce.h" | tr -d '(' | sort -u)
exported=$("$nm" -D --defined-only "$library" | awk '{ print $NF }' | sort -u)
for name in $exported; do
    echo "$declared" | grep -qx "$name" || { echo "exported, but not in pcie_allreduce.h: $name"; exit 1; }
done

# Anonymous namespaces and static device objects carry a hash of the path: the bytes would differ between folders.
! "$nm" "$library" | grep 'GLOBAL__N\|_INTERNAL_' || { echo "symbols with a path hash"; exit 1; }

# No read-modify-write at system scope, no non-coherent loads of shared memory.
! grep -nE '(atom|red)\.[a-z._]*sys|ld\.global\.nc|__ldg' "$kernels"/*.h "$kernels"/protocol/*.h "$kernels"/*.cu || exit 1
