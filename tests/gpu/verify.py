#!/usr/bin/env python3
"""What verify, enable and disable must show on a machine with GPUs: a line a case, and a count at the end.

    tests/gpu/verify.py --site SITE [--cli SGL_PCIE] [--inject PROGRAM] [--out FOLDER] [--minutes N] [--faults LIST] [--pass NAME]... [GROUP]...

SITE holds an SGLang that is patched and built; copies of it are worked on, and what verify keeps about the copies is
taken away at the end. PROGRAM is the target sgl-pcie-gpu-inject; without it no faults are injected. FOLDER gets the
outputs. LIST is of faults by name, as nan,hang (all). NAME is a variable that even processes without an environment need here, as LD_LIBRARY_PATH where the driver's
libraries are found by nothing else. Groups, all by default: ladder few busy faults stale flag users traces report. Some cases need root.
Exit code 0: every case that could be tried holds.
"""

import argparse
import glob
import hashlib
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

FLAG = "SGLANG_FORCE_CUSTOM_AR_PCIE"
ROOT = os.geteuid() == 0
SECONDS_OF_THREE_LEVELS = 60  # on four GPUs
LIMIT = 300  # of one command

# Name and pair, level, exit code, what fails, what the backends come to, seconds.
FAULTS = [
    ("nan:0-1", 3, 7, ["load.0-1", "load-flag.0-1", "load-all.0-1"], {"push": "PASS", "pull": "FAIL", "host": "PASS"}, 90),
    ("corrupt:1-0", 2, 7, ["store.1-0", "store-all.1-0"], None, 30),
    ("drop:0-1", 2, 7, ["store.0-1", "store-flag.0-1", "store-all.0-1"], None, 30),
    ("lie:0-1", 2, 7, ["store.0-1", "store-flag.0-1", "load.0-1"], None, 60),
    ("sick:1-0", 2, 9, ["control.1"], None, 30),
    ("die:1-0", 2, 1, ["store.1-0"], None, 30),
    ("hang:0-1", 3, 8, ["store.0-1"], {"push": "FAIL", "pull": "PASS", "host": "PASS"}, 90),
    ("delay:0-1", 2, 8, ["store.0-1"], None, 60),
    ("slow:0-1", 2, 0, ["store-rate.0-1"], None, 30),
]

# What a process finds, whatever it was started by.
SEEN = """
import logging, sys
sys.dont_write_bytecode = True
sys.path.insert(0, {site!r})
logging.basicConfig(level=10, format="%(message)s", stream=sys.stdout)
from sgl_pcie import flag
print("%s %s %s" % (flag.read().value, flag.read().source, flag.decision().action))
"""

SPAWN = """
import multiprocessing, sys
def work(queue):
    sys.dont_write_bytecode = True
    sys.path.insert(0, {site!r})
    from sgl_pcie import flag
    queue.put("%s %s %s" % (flag.read().value, flag.read().source, flag.decision().action))
if __name__ == "__main__":
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    worker = context.Process(target=work, args=(queue,))
    worker.start()
    print(queue.get(timeout=60))
    worker.join()
"""


class Failed(Exception):
    pass


class Skipped(Exception):
    pass


def must(so, text):
    if not so:
        raise Failed(text)


# ---- the sites, and commands on them ----


class Site:
    """A copy of an install, of its own state."""

    def __init__(self, bench, name):
        self.bench, self.path = bench, bench.work / name
        self.path.mkdir()
        for pattern in ("sglang", "sglang-*.dist-info", "sgl_pcie", "sgl_pcie_runtime-*", ".sgl-pcie"):
            for found in glob.glob(str(bench.given.site / pattern)):
                shutil.copytree(found, self.path / os.path.basename(found), symlinks=True)

    def state(self):
        key = hashlib.sha256(os.fsencode(os.path.realpath(self.path))).hexdigest()[:16]
        above = "/var/lib/sgl-pcie" if ROOT else os.path.expanduser("~/.local/state/sgl-pcie")
        return pathlib.Path(above) / key

    def verdict(self):
        path = self.state() / "verdict.json"
        return path.read_bytes() if path.exists() else None

    def run(self, *words, **environment):
        return self.bench.run([self.bench.given.cli, words[0], "--site", self.path, *words[1:]], environment)

    def json(self, *words, expect=0, **environment):
        done = self.run(*words, "--json", **environment)
        try:
            told = json.loads(done.stdout)
        except ValueError:
            raise Failed("no JSON: %s %s" % (done.stdout[-200:], done.stderr[-200:])) from None
        self.bench.keep("%s-%d.json" % (words[0], self.bench.count), done.stdout)
        must(done.returncode == told["exit_code"], "exit code %d, and in JSON %d" % (done.returncode, told["exit_code"]))
        must(expect in (None, done.returncode), "exit code %d, not %s: %s" % (done.returncode, expect, told["message"]))
        return told

    def python(self, *prefix, code=SEEN, clean=True, **environment):
        """The last line that a Python started in this way says, and all before it."""
        script = self.bench.work / "seen.py"
        script.write_text(code.format(site=str(self.path)))
        environment = {name: os.environ[name] for name in self.bench.given.keep if name in os.environ} | environment
        started = ["env", "-i", *("%s=%s" % item for item in environment.items())] if clean else []
        done = self.bench.run([*started, *prefix, sys.executable, script])
        must(done.returncode == 0, done.stderr[-300:])
        lines = done.stdout.strip().splitlines()
        return lines[-1], "\n".join(lines[:-1])

    def tree(self):
        found = {}
        for path in sorted(self.path.rglob("*")):
            st = path.lstat()
            found[str(path)] = (st.st_mode, st.st_uid, path.read_bytes() if path.is_file() else None)
        return found


def made_up_profile(site):
    """As bench writes it, but for the figures: here the flag is looked at, and measuring takes its time."""
    told = json.loads(site.verdict())
    gpus = [r["gpus"] for r in told["results"] if r["result"] == "PASS" and r["backend"] == "host"][0]
    entry = {"max_bytes": 65536, "algorithm": "host-one-shot", "us": 6.0, "stock_us": 15.0}
    table = {"world": len(gpus), "gpus": gpus, "entries": [entry]}
    profile = {"schema": "sgl-pcie-profile/1", "bound": told["bound"], "tables": [table]}
    (site.state() / "profile.json").write_text(json.dumps(profile))


class Bench:
    def __init__(self, given):
        self.given, self.count, self.sites = given, 0, {}
        self.work = pathlib.Path(tempfile.mkdtemp(prefix="sgl-pcie-check-"))
        os.chmod(self.work, 0o755)

    def site(self, name="one"):
        if name not in self.sites:
            self.sites[name] = Site(self, name)
        return self.sites[name]

    def proved(self):
        """A site with a fresh verdict, whatever ran before."""
        site = self.site()
        if not json.loads(site.run("status", "--json").stdout)["verdict"]["fresh"]:
            site.json("verify")
        return site

    def enabled(self):
        site = self.proved()
        if not (site.state() / "profile.json").exists():
            made_up_profile(site)
        site.json("enable")
        return site

    def run(self, words, environment=None):
        self.count += 1
        mine = {key: value for key, value in os.environ.items() if key not in (FLAG, "SGL_PCIE_STATE", "SGL_PCIE_INJECT")}
        return subprocess.run(
            [str(word) for word in words], env={**mine, **(environment or {})}, cwd="/", stdin=subprocess.DEVNULL,
            capture_output=True, text=True, timeout=LIMIT, check=False,
        )  # fmt: skip

    def keep(self, name, text):
        if self.given.out:
            (self.given.out / name).write_text(text)

    def processes(self):
        """Those that run a program of our copies."""
        found = set()
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                if os.readlink("/proc/%s/exe" % pid).startswith(str(self.work)):
                    found.add(int(pid))
            except OSError:
                pass
        return found

    def nothing_left(self, shared):
        end = time.monotonic() + 5
        while self.processes() and time.monotonic() < end:
            time.sleep(0.05)
        must(not self.processes(), "processes are left: %s" % self.processes())
        more = {name for name in os.listdir("/dev/shm") if not name.startswith("sem.")} - shared
        must(not more, "shared memory is left: %s" % more)

    def close(self):
        for site in self.sites.values():
            shutil.rmtree(site.state(), ignore_errors=True)
        shutil.rmtree(self.work, ignore_errors=True)


# ---- cases ----

CASES = []


def case(group, name):
    def add(run):
        CASES.append((group, name, run))
        return run

    return add


def by_status(told, *statuses):
    return sorted(check["id"] for check in told["checks"] if check["status"] in statuses)


def results(told):
    return {(r["backend"], r["world"]): r["result"] for r in told["verdict"]["results"]}


@case("ladder", "levels 1 to 3 pass, as a table")
def ladder_text(bench):
    start = time.monotonic()
    done = bench.site().run("verify")
    took = time.monotonic() - start
    bench.keep("verify.txt", done.stdout)
    must(done.returncode == 0, done.stdout[-500:] + done.stderr[-500:])
    must(took <= SECONDS_OF_THREE_LEVELS, "took %.1f s" % took)
    return done.stdout.strip().splitlines()[-1]


@case("ladder", "levels 1 to 4 pass, as JSON")
def ladder_json(bench):
    told = bench.site().json("verify", "--level", "4", "--minutes", bench.given.minutes)
    must({check["level"] for check in told["checks"]} == {1, 2, 3, 4}, "a level is missing")
    must(not by_status(told, "FAIL", "INCONCLUSIVE"), str(by_status(told, "FAIL", "INCONCLUSIVE")))
    worlds = {world for backend, world in results(told) if backend == "host"}
    must(worlds == set(range(2, min(len(told["gpus"]), 8) + 1)), "worlds of host: %s" % worlds)
    spent = {}
    for check in told["checks"]:
        kind = check["id"].split(".")[0]
        spent[kind] = spent.get(kind, 0) + check["duration_ms"] / 1e3
    longest = sorted(spent.items(), key=lambda item: -item[1])[:6]
    return "%s; seconds: %s" % (told["message"], ", ".join("%s %.1f" % item for item in longest))


@case("few", "one GPU: exit 5, and what to do")
def one_gpu(bench):
    told = bench.site().json("verify", "--gpus", "0", expect=5)
    must(told["next"], "no next command")
    return "%s; next: %s" % (told["message"], told["next"])


@case("few", "no GPU visible: exit 5, and what to do")
def no_gpu(bench):
    told = bench.site().json("verify", expect=5, CUDA_VISIBLE_DEVICES="")
    must(told["next"], "no next command")
    return "%s; next: %s" % (told["message"], told["next"])


def wait_for(bench, code, seconds):
    end = time.monotonic() + seconds
    told = bench.site().json("verify", "--level", "1", expect=None)
    while told["exit_code"] != code and time.monotonic() < end:
        time.sleep(0.3)
        told = bench.site().json("verify", "--level", "1", expect=None)
    must(told["exit_code"] == code, "exit code %d, not %d: %s" % (told["exit_code"], code, told["message"]))
    return told


@case("busy", "another process computes: exit 9, pids listed, the verdict left alone, and fine again after it")
def busy(bench):
    before = bench.proved().verdict()
    program = bench.site("other").path / "sgl_pcie" / "sgl-pcie-gpu"
    words = [program, "smoke", "--world", "2", "--mode", "process", "--types", "bf16", "--max-bytes", "64K", "--soak", "100M"]
    with subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True) as worker:
        try:
            told = wait_for(bench, 9, 20)
            bench.site().json("verify", expect=9)
        finally:
            os.killpg(worker.pid, signal.SIGKILL)
    (check,) = [check for check in told["checks"] if check["id"] == "grant.processes"]
    must("pid " in check["actual"] or "MiB in use" in check["actual"], check["actual"])
    must(bench.site().verdict() == before, "the verdict was touched")
    wait_for(bench, 0, 20)
    return check["actual"]


def fault(bench, told_to, level, code, failing, backends, seconds):
    if not bench.given.inject:
        raise Skipped("no --inject PROGRAM")
    if bench.given.faults and told_to.split(":")[0] not in bench.given.faults.split(","):
        raise Skipped("not among --faults")
    site = bench.site("inject")
    shutil.copy(bench.given.inject, site.path / "sgl_pcie" / "sgl-pcie-gpu")
    shared = {name for name in os.listdir("/dev/shm") if not name.startswith("sem.")}
    start = time.monotonic()
    told = site.json("verify", "--level", str(level), expect=code, SGL_PCIE_INJECT=told_to)
    took = time.monotonic() - start
    found = by_status(told, *(["FAIL", "INCONCLUSIVE"] if code != 0 else ["WARN"]))
    must(set(failing) <= set(found), "these failed: %s" % found)
    must(not any(name.startswith(("host", "nccl")) for name in found) or code in (0, 9), "these failed, too: %s" % found)
    if backends:
        must({b: r for (b, world), r in results(told).items() if world == 2} == backends, str(results(told)))
    must(took < seconds, "took %.1f s" % took)
    bench.nothing_left(shared)
    return ", ".join(found)


for row in FAULTS:
    case("faults", "%s is caught, exit %d" % (row[0], row[2]))(lambda bench, row=row: fault(bench, *row))


@case("stale", "a rebuilt libpar.so: status, enable and the hook say so")
def stale(bench):
    site = bench.enabled()
    library = site.path / "sgl_pcie" / "libpar.so"
    before = library.read_bytes()
    try:
        library.write_bytes(before + b"\0")
        told = site.json("status")
        must(not told["verdict"]["fresh"] and "libpar.so was" in told["verdict"]["reasons"][0], str(told["verdict"]))
        refused = site.json("enable", expect=1)
        must("stale: libpar.so was" in refused["message"], refused["message"])
        seen, log = site.python()
        must(seen == "1 install stock", seen)
        must("the verdict is stale: libpar.so was" in log, log)
    finally:
        library.write_bytes(before)
    must(site.json("status")["verdict"]["fresh"], "still stale with the old bytes")
    return log


def sees(site, *prefix, want="1 install communicator", **options):
    seen, log = site.python(*prefix, **options)
    must(seen == want, "%s: %s" % (seen, log))
    return seen


@case("flag", "env -i sees it")
def clean_process(bench):
    return sees(bench.enabled())


@case("flag", "a login shell sees it")
def login_shell(bench):
    return sees(bench.enabled(), "bash", "-lc", 'exec "$0" "$1"', clean=False)


@case("flag", "a spawned multiprocessing worker sees it")
def spawned(bench):
    return sees(bench.enabled(), code=SPAWN)


@case("flag", "a service sees it")
def service(bench):
    if os.path.isdir("/run/systemd/system") and ROOT:
        return sees(bench.enabled(), "systemd-run", "--wait", "--pipe", "--quiet", clean=False)
    return sees(bench.enabled(), "setsid", "--wait", PATH="/usr/sbin:/usr/bin", INVOCATION_ID="0", SYSTEMD_EXEC_PID="1") + ", as systemd would start it"


@case("flag", "the variable beats it")
def variable(bench):
    return sees(bench.enabled(), want="0 environment stock", **{FLAG: "0"})


@case("users", "another user sees what root enabled")
def another_user(bench):
    if not ROOT:
        raise Skipped("needs root")
    return sees(bench.enabled(), "setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")


@case("users", "a third user's flag does not count, nor his verdict")
def third_user(bench):
    if not ROOT:
        raise Skipped("needs root")
    site = bench.enabled()
    flag, verdict = site.path / ".sgl-pcie" / "flag.json", site.state() / "verdict.json"
    try:
        os.chown(flag, 4711, 4711)
        sees(site, want="None unset stock")
        os.chown(flag, 0, 0)
        os.chown(verdict, 4711, 4711)
        seen, log = site.python()
        must(seen == "1 install stock" and "another user" in log, "%s: %s" % (seen, log))
    finally:
        os.chown(flag, 0, 0)
        os.chown(verdict, 0, 0)
    return log


@case("traces", "another environment on this machine knows nothing of it")
def two_environments(bench):
    bench.enabled()
    other = bench.site("other")
    sees(other, want="None unset stock")
    must(not other.json("status")["verdict"]["present"], "it has a verdict")
    return other.json("enable", expect=1)["message"]


@case("traces", "disable removes every trace")
def disable(bench):
    site = bench.enabled()
    site.json("disable")
    before = site.tree()
    site.json("enable")
    must(site.tree() != before, "enable changed nothing")
    site.json("disable")
    must(site.tree() == before, "something is left")
    return sees(site, want="None unset stock")


@case("report", "a recording without names, judged again as here")
def report(bench):
    path = bench.work / "report.json"
    done = bench.site().run("report", "--out", path)
    must(done.returncode == 0, done.stdout + done.stderr)
    text = path.read_text()
    bench.keep("report.json", text)
    host = socket.gethostname()
    must(len(host) < 4 or host not in text, "the host's name is in it")
    must(str(bench.work) not in text, "a path is in it")
    here, there = bench.site().json("verify", "--level", "1", expect=None), None
    done = bench.run([bench.given.cli, "verify", "--from", path, "--json"])
    there = json.loads(done.stdout)
    must(by_status(there, "FAIL", "WARN") == by_status(here, "FAIL", "WARN"), str(by_status(there, "FAIL", "WARN")))
    return "%d GPUs, %d bytes" % (len(there["gpus"]), len(text))


# ---- all of them ----


def run_case(bench, group, name, run):
    start = time.monotonic()
    try:
        word, detail = "ok", run(bench)
    except Skipped as why:
        word, detail = "skipped", str(why)
    except (Failed, OSError, LookupError, TypeError, ValueError, subprocess.TimeoutExpired) as why:
        word, detail = "FAILED", "%s%s" % ("" if isinstance(why, Failed) else type(why).__name__ + ": ", why)
    detail = " ".join(str(detail).split())
    print("%-7s %6.1f s  %-6s %s: %s" % (word, time.monotonic() - start, group, name, detail[:400]), flush=True)
    return word


def arguments():
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("--site", type=pathlib.Path, required=True)
    words.add_argument("--cli", default=shutil.which("sgl-pcie") or "sgl-pcie")
    words.add_argument("--inject", type=pathlib.Path)
    words.add_argument("--out", type=pathlib.Path)
    words.add_argument("--minutes", default="0.1")
    words.add_argument("--faults")
    words.add_argument("--pass", dest="keep", action="append", default=[])
    words.add_argument("group", nargs="*")
    given = words.parse_args()
    unknown = set(given.group) - {group for group, _, _ in CASES}
    if unknown:
        words.error("no such group: %s" % ", ".join(sorted(unknown)))
    given.cli = os.path.abspath(given.cli) if os.path.exists(given.cli) else given.cli
    if given.out:
        given.out.mkdir(parents=True, exist_ok=True)
    return given


def main():
    given = arguments()
    bench = Bench(given)
    try:
        groups = given.group or list(dict.fromkeys(group for group, _, _ in CASES))
        words = [run_case(bench, *row) for group in groups for row in CASES if row[0] == group]
    finally:
        bench.close()
    print("%d of %d cases hold, %d failed, %d skipped" % (words.count("ok"), len(words), words.count("FAILED"), words.count("skipped")))
    return 1 if "FAILED" in words else 0


if __name__ == "__main__":
    sys.exit(main())
