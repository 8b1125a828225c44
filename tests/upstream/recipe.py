"""Compile a text of SGLang's all-reduce by the recipes of kernels/, patched or not, which the program itself refuses.

    recipe.py TEXT FOLDER ARCHITECTURES [probe]      ARCHITECTURES: as "80 90"

FOLDER/out/ gets libupstream.so; with `probe` libpar.so and upstream-probe, too. FOLDER/obj/ has the objects.
"""

import concurrent.futures
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

KERNELS = Path(__file__).resolve().parents[2] / "kernels"


def fill(command, archs, **values):
    words = []
    for word in command:
        if word == "{gencode}":
            words += ["-gencode=arch=compute_%s,code=sm_%s" % (arch, arch) for arch in archs]
        elif word == "{objects}":
            words += values["objects"]
        else:
            for name, value in values.items():
                if isinstance(value, str):
                    word = word.replace("{%s}" % name, value)
            words.append(word)
    return words


def run(command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.exit("%s\n%s%s" % (" ".join(command), done.stdout, done.stderr))


def build(recipe, archs):
    """What a recipe has at its top; in kernels/ of the folder, as build/ does it."""
    nvcc = os.environ.get("SGL_PCIE_NVCC") or shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc"
    common = dict(cc="gcc", nvcc=nvcc, cuda=str(Path(nvcc).resolve().parent.parent), library="../out/libpar.so")
    name, objects, commands = recipe["library"], [], []
    Path("../obj", name).mkdir(parents=True, exist_ok=True)
    for kind, key in (("compile_c", "sources"), ("compile_cu", "kernels")):
        for source in recipe.get(key, ()):
            objects.append("../obj/%s/%s.o" % (name, source.replace("/", "-")))
            commands.append(fill(recipe[kind], archs, source=source, object=objects[-1], **common))
    with concurrent.futures.ThreadPoolExecutor(int(os.environ.get("JOBS", "2"))) as pool:
        list(pool.map(run, commands))
    common["library"] = "../out/%s" % name if recipe.get("others") else common["library"]
    run(fill(recipe["link"], archs, objects=objects, output="../out/%s" % name, **common))


def main():
    text, folder, archs = Path(sys.argv[1]).resolve(), Path(sys.argv[2]), sys.argv[3].split()
    names = ["upstream/overlay.json"]
    if sys.argv[4:] == ["probe"]:
        names = ["sources.json", *names, "upstream/probe.json"]
    (folder / "out").mkdir(parents=True)
    shutil.copytree(KERNELS, folder / "kernels")
    (folder / "kernels/upstream/text").mkdir()
    shutil.copy(text, folder / "kernels/upstream/text/custom_all_reduce.cuh")
    os.chdir(folder / "kernels")
    for name in names:
        build(json.loads(Path(name).read_text()), archs)


if __name__ == "__main__":
    main()
