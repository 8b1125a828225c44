#!/bin/sh
# sgl-pcie-gpu over a fake GPU and a fake libpar.so (fake.c): it passes what is right and finds what is wrong.
# usage: fake.sh PROGRAM
program=$1
bad=0

# run EXPECTED-EXIT-CODE EXPECTED-TEXT ENVIRONMENT... -- ARGUMENTS...
run() {
    code=$1 want=$2 settings=
    shift 2
    while [ "$1" != -- ]; do settings="$settings $1"; shift; done
    shift
    out=$(env $settings "$program" "$@" 2>&1)
    got=$?
    if [ $got -ne "$code" ] || ! printf '%s\n' "$out" | grep -q -e "$want"; then
        printf 'FAILED:%s %s\nexit code %s, not %s; wanted: %s\n%s\n' "$settings" "$*" $got "$code" "$want" "$out"
        bad=1
    fi
}

small="--types bf16 --world 2 --max-bytes 16K --mode process --algorithms host-one-shot,push-two-shot"

run 5 'no usable GPU' FAKE_GPUS=0 -- smoke
run 5 'there is no NVIDIA driver' FAKE_GPUS=-1 -- smoke
run 0 '^usage: sgl-pcie-gpu' -- smoke --help
run 2 "no command 'smok'" -- smok
run 2 "bad value '1' for --world" -- smoke --world 1
for size in x nan inf 1e300 1.5 -1 0 0x10 4Z 99999999999999999999 99999999999G; do
    run 2 "bad value '$size' for --sizes" -- perf --sizes $size
done
run 2 "bad value 'nan' for --seed" -- smoke --seed nan
run 2 "bad value '1e30' for --gpus" -- smoke --gpus 1e30
run 2 "bad value 'nan' for --timeout" -- smoke --timeout nan
run 2 "unexpected 'extra'" -- smoke extra
run 0 'PASS smoke/process/2/soak .* 2[0-9]* calls in a row' FAKE_GPUS=2 -- smoke $small --soak 2000
run 0 'PASS smoke/process/2/soak *2\.[0-9] s' FAKE_GPUS=2 -- smoke $small --soak-for 2
run 0 'PASS smoke/local/3/host' FAKE_GPUS=1 -- smoke --types fp16 --world 3 --max-bytes 16K --mode local
run 0 'PASS smoke/process/2/push' FAKE_GPUS=1 -- smoke $small --gpus 0,0
run 5 'gpus 0,0 lets two share one' FAKE_GPUS=1 -- smoke --mode process
run 0 '"status":"PASS"' FAKE_GPUS=2 -- smoke $small --json
run 7 'rank 1 of 2: .* expected 0x' FAKE_GPUS=2 FAKE_FAULT=element -- smoke $small
run 7 '1 guard bytes' FAKE_GPUS=2 FAKE_FAULT=guard -- smoke $small
run 7 'changed its input' FAKE_GPUS=2 FAKE_FAULT=input -- smoke $small
run 7 'expected 0x8000 seen 0x0000' FAKE_GPUS=2 FAKE_FAULT=zero -- smoke $small
run 7 'FAIL smoke/local/3/host' FAKE_GPUS=1 FAKE_FAULT=sum -- smoke --types fp32 --world 3 --max-bytes 16K --mode local --transport host
run 8 'rank 2 did not come' FAKE_GPUS=2 FAKE_FAULT=abort -- smoke $small
run 1 'MiB of GPU memory behind' FAKE_GPUS=2 FAKE_FAULT=leak -- smoke $small
run 0 '0 wrong elements' FAKE_GPUS=2 -- perf --no-nccl --sizes 8K --calls 3 --iterations 3 --each
run 5 'libnccl-that-is-not.so' FAKE_GPUS=2 -- perf --nccl libnccl-that-is-not.so --sizes 8K --calls 3 --iterations 3
exit $bad
