#!/usr/bin/env bash
# Make the pack that run.sh needs: released SGLang wheels with what they import, patched by `sgl-pcie apply`, built by `sgl-pcie build`.
#
#   pack.sh FOLDER [ARCH]        ARCH: of the GPUs, default sm_90; needs nvcc, a build of this project in out/, and a Python 3.12 with pip ($PYTHON).
#                                $UPSTREAM: a checkout of v0.5.11 that `apply --set sgl-kernel` patched, for libupstream.so
#
# FOLDER gets wheels/ (downloaded once), site/ (sglang 0.5.11 and its kernel package, torch not included: 0.5.11 pins 2.11), releases/VERSION (other
# releases, Python files only), other/ (our package with another build of libpar.so), model/ (configuration of a Qwen3-32B-like model and a toy
# tokenizer; weights are dummies), stubs/. Then two archives: base.txz (39 MiB, minutes to write) and ours.txz (what a new build of this project changes).
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
folder=$(realpath -m "$1")
arch=${2:-sm_90}
python=${PYTHON:-python3.12}
sgl_pcie=${SGL_PCIE:-$here/../../out/bin/sgl-pcie}
wheels=$folder/wheels
site=$folder/site
releases="0.5.5 0.5.9 0.5.23"

packages="sglang==0.5.11 sglang-kernel==0.4.2 transformers==5.6.0 tokenizers==0.22.2 apache-tvm-ffi==0.1.15.post2
 compressed-tensors==0.20.1 loguru==0.7.3 gguf==0.19.0 dill==0.4.1 pydantic==2.14.4 pydantic-core==2.50.5
 annotated-types==0.8.0 typing-inspection==0.4.5 fastapi==0.121.3 starlette==0.50.0 uvicorn==0.54.0
 python-multipart==0.0.34 pyzmq==27.3.0 msgspec==0.23.0 orjson==3.13.0 pybase64==1.5.1 setproctitle==1.3.8
 jsonschema==4.26.0 jsonschema-specifications==2025.9.1 referencing==0.37.0 rpds-py==2026.9.1
 partial-json-parser==0.2.1.1.post7 interegular==0.3.3 openai==2.6.1 distro==1.9.0 jiter==0.19.0 sniffio==1.3.1"

download() {
    local platforms=() n
    for n in 39 35 34 31 28 27 24 17; do platforms+=(--platform "manylinux_2_${n}_x86_64"); done
    mkdir -p "$wheels"
    # shellcheck disable=SC2086
    "$python" -m pip download -q --no-deps --only-binary=:all: --python-version 3.12 --implementation cp "${platforms[@]}" \
        --platform manylinux2014_x86_64 --platform manylinux1_x86_64 -d "$wheels" "$@"
}

unpack_site() {
    local wheel data
    mkdir -p "$site"
    for wheel in "$wheels"/*.whl; do
        case $(basename "$wheel") in
        sglang_kernel-*) # the kernels for this generation of GPUs, without those of attention libraries
            (cd "$site" && unzip -q -o "$wheel" 'sgl_kernel/*' 'sglang_kernel-*.dist-info/*' -x '*flash_ops*' '*sm100*' '*flashmla_ops*')
            ;;
        sglang-0.5.11-*) (cd "$site" && unzip -q -o "$wheel") ;;
        sglang-*) ;;
        *) (cd "$site" && unzip -q -o "$wheel") ;;
        esac
    done
    for data in "$site"/*.data; do
        [ -d "$data" ] || continue
        cp -r "$data"/purelib/. "$data"/platlib/. "$site"/ 2>/dev/null || true
        rm -rf "$data"
    done
    rm -rf "${site:?}"/sglang/{multimodal_gen,test,benchmark,jit_kernel/tests,jit_kernel/benchmark} "${site:?}/bin"
    find "$site" -name "*.a" -delete
    # gcc 12 cannot compile the trailing decltype of this one source that SGLang compiles at first use; the type spelled out is the same
    sed -i 's/-> decltype(activation_kernel<ActivationKind::kSiLU, kFilterExpert>) {/-> void (*)(const ActivationParams) {/' \
        "$site/sglang/jit_kernel/csrc/elementwise/activation.cuh"
}

unpack_release() {
    mkdir -p "$folder/releases/$1"
    # Sources that 0.5.23 compiles at first use lie under kernels/jit; earlier releases have no such folder, which is unzip's exit code 11.
    (cd "$folder/releases/$1" && unzip -q -o "$wheels"/sglang-"$1"-*.whl 'sglang/*.py' 'sglang/kernels/jit/*' 'sglang-*' \
        -x 'sglang/multimodal_gen/*' 'sglang/test/*' 2>/dev/null) || [ $? = 11 ]
}

stubs() {
    mkdir -p "$folder"/stubs/{IPython,flashinfer} "$folder/model" "$folder/lib"
    echo >"$folder/stubs/IPython/__init__.py"
    printf 'def HTML(*a, **k): pass\ndef display(*a, **k): pass\n' >"$folder/stubs/IPython/display.py"
    # What sglang 0.5.11 imports without asking. Sampling is pytorch's and attention triton's here, and nobody sends sound: none of it is called.
    echo >"$folder/stubs/soundfile.py"
    echo >"$folder/stubs/flashinfer/__init__.py"
    printf 'def _no(*a, **k): raise RuntimeError("flashinfer is a stub")\nmin_p_sampling_from_probs = top_k_top_p_sampling_from_probs = top_k_renorm_prob = top_p_renorm_prob = _no\n' \
        >"$folder/stubs/flashinfer/sampling.py"
    printf 'def cudnn_batch_prefill_with_kv_cache(*a, **k): raise RuntimeError("flashinfer is a stub")\n' >"$folder/stubs/flashinfer/prefill.py"
    cp "$here/model.json" "$folder/model/config.json"
    PYTHONPATH=$site "$python" -B "$here/tokenizer.py" "$folder/model"
    cp /usr/lib/x86_64-linux-gnu/libnuma.so.1.0.0 "$folder/lib/libnuma.so.1" 2>/dev/null || true
}

# sgl-pcie, installed; what bench's tests call its functions with; and the libraries that another distribution may lack
programs() {
    local build tool
    build=$(dirname "$(dirname "$sgl_pcie")")
    tool=$(find "$build" -name bench_tool -type f -print -quit)
    cmake --install "$build" --prefix "$folder" >/dev/null
    mkdir -p "$folder/bin/lib"
    cp "$tool" "$folder/bin/"
    ldd "$sgl_pcie" "$tool" | awk '$3 ~ /lib(elf|git2|jansson|mbed|http_parser|ssh2|pcre2)/ { print $3 }' | sort -u | xargs -I{} cp -L {} "$folder/bin/lib/"
}

archives() {
    local ours=(bin share site/sgl_pcie site/.sgl-pcie other/sgl_pcie) release
    [ -s "$folder/base.txz" ] ||
        tar -C "$folder" --exclude=__pycache__ --exclude='*/sgl_pcie' --exclude='*/.sgl-pcie' -cf - lib model releases site stubs | xz -6 -T0 >"$folder/base.txz"
    for release in $releases; do ours+=("releases/$release/sgl_pcie" "releases/$release/.sgl-pcie"); done
    tar -C "$folder" --exclude=__pycache__ -cf - "${ours[@]}" | xz -9 -T1 >"$folder/ours.txz"
    ls -l "$folder"/*.txz
}

# shellcheck disable=SC2086
[ -n "$(ls "$wheels"/rpds_py-*.whl 2>/dev/null)" ] || download $packages
unpack_site
stubs
for release in $releases; do
    [ -n "$(ls "$wheels"/sglang-"$release"-*.whl 2>/dev/null)" ] || download "sglang==$release"
    unpack_release "$release"
done
"$sgl_pcie" apply --site "$site"
"$sgl_pcie" build --site "$site" --arch "sm_80,$arch"
mkdir -p "$folder/other"
programs
cp -r "$site/sgl_pcie" "$folder/other/"
[ -z "${UPSTREAM:-}" ] || "$sgl_pcie" build --upstream --source "$UPSTREAM" --site "$site" --arch "$arch"
for target in "$site" "$folder"/releases/*; do
    "$sgl_pcie" apply --site "$target"
    "$sgl_pcie" build --site "$target" --arch "$arch"
done
archives
