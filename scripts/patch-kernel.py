#!/usr/bin/env python3
"""Make the patch set `sgl-kernel`: from a clone of SGLang's repository with its release tags.

    patch-kernel.py CLONE            make everything from the clone's tags; where an anchor moved, write nothing
    patch-kernel.py CLONE --check    the same in memory: is what is committed what this script makes?

This script is the source of the patches, as patch-release.py is of the other set: what is inserted and where is in
MEMBERS and BRANCH below, and nowhere else. A tag is a release, and the blob that it has at one of PATHS is its text.
Git is asked for blobs only: the clone may be bare, and nothing in it changes.
"""

import argparse
import importlib.util
import re
import subprocess
import sys
from pathlib import Path

REVISION = 1
SUMMARY = "give sgl-kernel's all-reduce a branch for GPUs without full NVLink, and an error where it launched nothing"

FILE = "csrc/allreduce/custom_all_reduce.cuh"
PATHS = ("sgl-kernel/" + FILE, "python/sglang/kernels/aot/" + FILE)  # below the checkout; to 0.5.16, and from 0.5.17
NAME = "pcie-branch"

# One-stage reads (n - 1) times its bytes over the bus, two-stage 2 (n - 1) / n times, with a barrier more.
ONE_STAGE = 64 * 1024

INCLUDES = r"#include <array>"
INCLUDED = ["#include <cstdio>", "#include <cstdlib>"]

MEMBER = r"  bool full_nvlink_;"
MEMBERS = """\

  // sgl_pcie: without full NVLink, the most bytes that go in one stage and the most that go in two.
  std::array<size_t, 2> sgl_pcie_limits_ = sgl_pcie_limits();
  static std::array<size_t, 2> sgl_pcie_limits() {
    std::array<size_t, 2> limits{%d * 1024, std::numeric_limits<size_t>::max()};
    const char* given = std::getenv("SGLANG_PCIE_UPSTREAM_LIMITS");
    const std::string text = given != nullptr ? given : "";
    char rest;
    if (given != nullptr && (text.find_first_not_of("0123456789,") != std::string::npos ||
                             std::sscanf(given, "%%zu,%%zu%%c", &limits[0], &limits[1], &rest) != 2))
      throw std::runtime_error("SGLANG_PCIE_UPSTREAM_LIMITS should be two numbers of bytes, ONE,TWO; it is: " + text);
    return limits;
  }
  bool sgl_pcie_one_stage(size_t bytes) const {
    if (bytes > sgl_pcie_limits_[0] && bytes > sgl_pcie_limits_[1])
      throw std::runtime_error(
          "custom allreduce: no kernel for " + std::to_string(bytes) + " bytes on " + std::to_string(world_size_) +
          " GPUs without full NVLink: SGLANG_PCIE_UPSTREAM_LIMITS is " + std::to_string(sgl_pcie_limits_[0]) + "," +
          std::to_string(sgl_pcie_limits_[1]));
    return bytes <= sgl_pcie_limits_[0];
  }
""" % (ONE_STAGE // 1024)

# In front of this line of REDUCE_CASE, indented as it is, its backslashes in the same column.
BEFORE = r"\s*\} else if \(full_nvlink_\) \{ +\\"
BRANCH = """\
} else if (!full_nvlink_) {
  if (sgl_pcie_one_stage(bytes)) {
    KL(ngpus, cross_device_reduce_1stage);
  } else {
    KL(ngpus, cross_device_reduce_2stage);
  }
"""
NEEDS = (  # what the inserted lines rely on
    r"#include <limits>",
    r"  int world_size_;",
    r"    auto bytes = size \* sizeof\(typename packed_t<T>::P\);",
    r"#define KL\(ngpus, name\).*",
    r".*\bcross_device_reduce_1stage\(.*",
    r".*\bcross_device_reduce_2stage\(.*",
)


def load(name):
    spec = importlib.util.spec_from_file_location(name.replace("-", "_"), Path(__file__).with_name(name + ".py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


release = load("patch-release")


def only(lines, pattern):
    """The number of the one line that matches."""
    hits = [number for number, line in enumerate(lines) if re.fullmatch(pattern, line)]
    if len(hits) != 1:
        found = "none" if not hits else "lines " + ", ".join(str(hit + 1) for hit in hits)
        raise release.Moved("  %s: one line should match '%s': %s" % (NAME, pattern, found))
    return hits[0]


def branch(anchor):
    """The lines of BRANCH, as the lines of the macro around them look."""
    indent = re.match(r"\s*", anchor).group()
    return [(indent + line).ljust(len(anchor) - 1) + "\\" for line in BRANCH.splitlines()]


def insertions(data):
    """[(number of lines before, [inserted lines])], in order."""
    lines = data.decode().split("\n")
    if b"\r" in data or lines.pop() != "":
        raise release.Moved("  not a text of LF lines, each of them ended")
    for need in NEEDS:
        if not any(re.fullmatch(need, line) for line in lines):
            raise release.Moved("  %s needs a line '%s'" % (NAME, need))
    case = only(lines, BEFORE)
    return [
        (only(lines, INCLUDES) + 1, INCLUDED),
        (only(lines, MEMBER) + 1, MEMBERS.splitlines()),
        (case, branch(lines[case])),
    ]


def git(clone, *args):
    done = subprocess.run(["git", "-C", str(clone), *args], check=False, capture_output=True)
    if done.returncode != 0:
        sys.exit("git says of '%s': %s" % (clone, done.stderr.decode(errors="replace").strip()))
    return done.stdout


def tags(clone):
    """{version: {path: blob id}} of every release tag that has the file, in either layout."""
    result = {}
    for tag in git(clone, "tag", "--list", "v*").decode().split():
        version = tag[1:]
        if not re.fullmatch(r"\d+\.\d+\.\d+(rc\d+|\.post\d+)?", version):
            continue
        listed = git(clone, "ls-tree", tag, "--", *PATHS).decode().splitlines()
        files = {line.split("\t")[1]: line.split()[2] for line in listed}
        if len(files) > 1:
            raise release.Moved("%s has the file in both layouts" % tag)
        if files:
            result[version] = files
    return result


class KernelSet(release.PatchSet):
    name, summary = "sgl-kernel", SUMMARY
    base = {"base": "checkout"}

    @staticmethod
    def refusal(version):
        return None

    def add_text(self, clone, path, pre):
        data = git(clone, "cat-file", "blob", pre)
        try:
            post, patch = release.make_patch(path, data, insertions(data))
        except release.Moved as problem:
            raise release.Moved("%s, blob %s\n%s" % (path, pre, problem)) from None
        self.texts[path, pre] = release.Text((NAME,), release.blob_id(post), patch)


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("clone", type=Path, help="a git repository with SGLang's tags")
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if something would change")
    parser.add_argument("--patches", type=Path, default=Path(__file__).resolve().parent.parent / "patches")
    args = parser.parse_args(argv)

    before = KernelSet(args.patches, REVISION)
    patches = before.anew(REVISION)
    try:
        patches.releases = tags(args.clone)
        for path, pre in sorted({item for files in patches.releases.values() for item in files.items()}):
            patches.add_text(args.clone, path, pre)
    except release.Moved as problem:
        sys.exit("%s\nnothing was written" % problem)
    if not patches.releases:
        sys.exit("'%s' has no release tag with sgl-kernel's all-reduce" % args.clone)
    patches.adopt_old(before)
    release.finish(patches, args.check)


if __name__ == "__main__":
    main()
