#!/bin/bash
# `sgl-pcie setup` on a machine with GPUs: from an unpatched SGLang to enabled in one command, then once more with a
# kill -9 in every stage, each time taken up again. Needs nvcc, python3, and two GPUs or more.
#
#   scripts/setup-check.sh SGL-PCIE SITE WORK
#     SGL-PCIE   the program        SITE   an unpatched site-packages folder        WORK   a new folder for all that is written
#
# In WORK: clean.txt (the one command, as a user sees it), bench.txt, quick.txt, killed.txt, report.json. Exits with 1 if
# anything differs from what it should be. In the environment: SETUP_OPTIONS, words for setup, as --arch sm_90;
# NCCL_P2P_DISABLE=1 makes stock what it is without peer access.
set -u
[ $# -eq 3 ] || { sed -n '5s/^# *//p' "$0" >&2; exit 2; }
program=$1 site=$2 work=$3 failed=0
mkdir -p "$work" && work=$(realpath "$work") || exit
export SGL_PCIE_STATE=$work/state PYTHONDONTWRITEBYTECODE=1

say() {
    printf '%s\n' "$*"
}

# must WHAT COMMAND...: the command must succeed.
must() {
    local what=$1
    shift
    if "$@"; then say "ok    $what"; else say "WRONG $what" && failed=1; fi
}

sees_flag() {
    env -i /usr/bin/env python3 -B -c "import sys; sys.path.insert(0, '$1'); from sgl_pcie import flag; f = flag.read()
sys.exit((f.value, f.source) != ('1', 'install'))"
}

nobody_left() {
    sleep 0.5
    ! pgrep -f "$1/sgl_pcie/sgl-pcie-gpu" >/dev/null
}

clean() {
    local start=$SECONDS
    cp -r "$site" "$work/clean"
    "$program" setup ${SETUP_OPTIONS:-} --site "$work/clean" >"$work/clean.txt" 2>&1
    must "setup in one command, exit status 0, $((SECONDS - start)) s" test $? = 0
    cat "$work/clean.txt"
    must "env -i python3 sees the flag" sees_flag "$work/clean"
    "$program" status --site "$work/clean" | grep -E '^(verdict|profile|flag)|\[ok\]|✓'
}

look() {
    local start=$SECONDS
    mkdir "$work/first" && cp "$SGL_PCIE_STATE"/*/{profile,bench}.json "$work/first"
    "$program" bench --from "$(echo "$SGL_PCIE_STATE"/*/bench.json)" --step 122x43008 >"$work/bench.txt" 2>&1
    must "bench --from bench.json --step 122x43008" test $? = 0
    grep 'all-reduces of' "$work/bench.txt"
    "$program" report --site "$work/clean" --out "$work/report.json"
    "$program" bench --site "$work/clean" --quick >"$work/quick.txt" 2>&1
    must "bench --quick, $((SECONDS - start)) s" test $? = 0
}

# Kill setup so many tenths of a second after it has entered a stage: as many lines are printed as stages are over.
kill_in() {
    local stage=$1 lines=$2 tenths=$3 pid killed=no
    "$program" setup ${SETUP_OPTIONS:-} --site "$work/killed" >"$work/part.txt" 2>&1 &
    pid=$!
    while kill -0 $pid 2>/dev/null && [ "$(wc -l <"$work/part.txt")" -lt "$lines" ]; do sleep 0.01; done
    sleep "$((tenths / 10)).$((tenths % 10))"
    kill -9 $pid 2>/dev/null && killed=yes
    wait $pid 2>/dev/null
    must "killed in $stage ($killed), nobody is left" nobody_left "$work/killed"
    { say "--- $stage" && cat "$work/part.txt"; } >>"$work/killed.txt"
}

killed() {
    rm -rf "$SGL_PCIE_STATE"
    cp -r "$site" "$work/killed"
    kill_in doctor 1 0
    kill_in apply 2 0
    kill_in build 3 10
    kill_in verify 4 20
    kill_in bench 5 30
    kill_in enable 6 0
    "$program" setup ${SETUP_OPTIONS:-} --site "$work/killed" >"$work/part.txt" 2>&1
    must "setup to its end after all that" test $? = 0
    cat "$work/part.txt"
    must "the same choices as without a kill" "$(dirname "$0")/same-choices.py" "$work/first" "$(echo "$SGL_PCIE_STATE"/*)"
    must "env -i python3 sees the flag" sees_flag "$work/killed"
    "$program" disable --site "$work/killed" >/dev/null && "$program" revert --site "$work/killed" >/dev/null
    must "revert leaves what was there" diff -r "$site" "$work/killed"
}

clean
look
killed
exit $failed
