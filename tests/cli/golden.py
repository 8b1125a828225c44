"""Golden tests: run the command lines of a .case file and compare what they print.

    # why this case is here
    $ sgl-pcie status --site site
    | a line of standard output
    ! a line of standard error
    = 0

Each case runs in a folder of its own, under bash, with `site` a fresh copy of the released sglang 0.5.23 (the part
that matters) and `wheel` another one to compare with. The commands of a case share the folder. An object printed by
--json is validated against docs/json-schema and must be as jansson writes it: keys sorted. Before comparing,

    the folder, the program's data              become   T, DATA
    blob ids of patched files                   become   post(<name of the file>)
    numbers and names of the runtime's files    become   N, <runtime>: they change with every release of ours

    golden.py [--update] CASE...
"""

import functools
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "patches")]

import real  # noqa: E402
import schema  # noqa: E402
import source  # noqa: E402

VERSION = "0.5.23"
HELPERS = HERE / "bin"
DATA = pathlib.Path(real.CLI).resolve().parent.parent / "share" / "sgl-pcie"


@functools.lru_cache(maxsize=None)
def post_ids():
    """Every blob id that a patch gives, and the name of its file."""
    kernel = json.loads((source.PATCHES / "manifest.json").read_text())["sets"]["sgl-kernel"]
    return {text["post"]: os.path.basename(text["path"]) for text in real.SET["texts"] + kernel["texts"]}


def hide_ids(text):
    ids = post_ids()
    short = {oid[:12]: name for oid, name in ids.items()}

    def replace(match):
        name = ids.get(match[0]) or short.get(match[0])
        return f"post({name})" if name else match[0]

    return re.sub(r"\b(?:[0-9a-f]{40}|[0-9a-f]{12})\b", replace, text)


def normalise(text, folder):
    text = text.replace(str(folder), "T").replace(str(DATA), "DATA")
    text = re.sub(r"\bpython3\.\d+/", "python3.X/", hide_ids(text))
    text = re.sub(r"\b\d+ files? of sgl-pcie-runtime", "N files of sgl-pcie-runtime", text)
    text = re.sub(r"(?m)^(\.sgl-pcie/|sgl_pcie/|sgl_pcie_runtime-)\S+", "<runtime>", text)
    text = re.sub(r"(?m)^(<runtime>  .*)  \S+  \S+$", r"\1  -  -", text)
    return re.sub(r"(?m)^(?:(<runtime>.*)\n)(?:<runtime>.*\n)*", r"\1 ...\n", text)


def fold(data):
    """Changes to files of the runtime, as one entry."""
    changes = data.get("changes") or []
    ours = sorted({change["action"] for change in changes if not change["set"]})
    if ours:
        data["changes"] = [change for change in changes if change["set"]] + [{"runtime": ours}]
    data["version"] = "VERSION"
    return data


def json_text(text):
    """The object as the case shows it; text itself when it is not one object of ours."""
    try:
        data = json.loads(text)
    except ValueError:
        return text
    if not isinstance(data, dict) or "schema" not in data:
        return text
    if text != json.dumps(data, indent=2, sort_keys=True, ensure_ascii=False) + "\n":
        raise AssertionError("the keys of the JSON object are not sorted")
    schema.validate(data)
    return json.dumps(fold(data), indent=2, sort_keys=True, ensure_ascii=False) + "\n"


def environment(program, folder):
    clean = {
        "HOME": str(folder),
        "LC_ALL": "C",
        "PATH": f"{HELPERS}:{os.path.dirname(program)}:/usr/bin:/bin:/usr/sbin:/sbin",
        "TMPDIR": str(folder),
    }
    kept = {name: value for name, value in os.environ.items() if name.startswith(("ASAN_", "UBSAN_", "LSAN_"))}
    return clean | kept


def run(command, program, folder):
    done = subprocess.run(
        ["bash", "-c", command],
        cwd=folder,
        env=environment(program, folder),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="surrogateescape",
        timeout=120,
        check=False,
    )
    lines = ["$ " + command]
    lines += ["| " + line for line in normalise(json_text(done.stdout), folder).splitlines()]
    lines += ["! " + line for line in normalise(done.stderr, folder).splitlines()]
    return [line.rstrip() for line in lines] + [f"= {done.returncode}"]


def play(case, program, tree):
    """What the case should look like."""
    result = []
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch).resolve() / "t"
        folder.mkdir()
        for name in ("site", "wheel"):
            shutil.copytree(tree, folder / name)
        for line in case.read_text().splitlines():
            if line.startswith("$ "):
                result += run(line[2:], program, folder)
            elif not line.startswith(("| ", "! ", "= ")) and line not in ("|", "!"):
                result.append(line)
    return result


def compare(case, program, tree, update):
    found = play(case, program, tree)
    expected = case.read_text().splitlines()
    if found == expected:
        return True
    if update:
        case.write_text("\n".join(found) + "\n")
        print(f"{case.name}: updated")
        return True
    import difflib

    print("\n".join(difflib.unified_diff(expected, found, str(case), "what was printed", lineterm="")))
    return False


def main(arguments):
    update = "--update" in arguments
    program = os.path.abspath(real.CLI)
    cases = [pathlib.Path(name) for name in arguments if name != "--update"]
    with tempfile.TemporaryDirectory() as tree:
        real.site(VERSION, tree)
        results = [compare(case, program, tree, update) for case in cases]
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
