"""Patched SGLang decides as stock SGLang does, unless the flag says otherwise.

harness.py runs the real modules of real wheels, stock and patched, through the same scenarios (world sizes, NVLink or
not, P2P or not, several nodes, no library, a wrong group), and prints what was decided: constructor, exceptions, log,
calls of the kernels' library, should_custom_ar for many sizes, what the dispatcher chose, the NVLink test of V2.
What it stands in for is written there.
"""

import importlib.util
import json
import os
import subprocess
import sys
import unittest
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "patches"))

import real  # noqa: E402

FLAG, BACKEND = "SGLANG_FORCE_CUSTOM_AR_PCIE", "SGLANG_PCIE_AR_BACKEND"
V1_FOR_PCIE = {FLAG: "unsafe", BACKEND: "upstream"}

EVERY = real.one_of_each()
DEFERRED = "build"  # name of what hand_out() gives to 0.5.12.post1, where the dispatcher is not told the group
# The first release of every shape that gate and hand-out have had.
ERAS = [
    "0.4.1.post7",
    "0.4.2",
    "0.4.4.post4",
    "0.4.9.post4",
    "0.5.5.post3",
    "0.5.9",
    "0.5.10",
    "0.5.12",
    "0.5.13",
    real.NEWEST,
]

COMMUNICATOR = """
class Communicator:
    def __init__(self, *args):
        self.args, self.disabled, self.original_disabled = repr(args), False, False

    def should_custom_ar(self, x):
        return True

    def custom_all_reduce(self, x):
        return x


def create(group, device, make_stock):
    if group.name == "fails":
        raise RuntimeError("no such luck")
    comm = Communicator(group.name, device) if group.name in ("serves", "holds") else None
    if group.name == "holds":
        comm.stock = make_stock()
    return comm
"""


class Trees(real.Scratch):
    """One stock and one patched tree per release, shared by all tests."""

    def tree(self, version, runtime=None, edit=None):
        """A tree: runtime None for stock, else the name of a variant of sgl_pcie ("none": patched without it)."""
        tree = self.folder / version / (runtime or "stock")
        if not tree.exists():
            real.site(version, tree)
            if runtime:
                real.patch(tree, version)
            if runtime not in (None, "none"):
                real.add_package(tree)
            if edit:
                edit(tree / "sgl_pcie")
        return tree

    def decide(self, tree, **env):
        base = {"PATH": os.environ["PATH"], "HOME": str(self.folder), "SGL_PCIE_STATE": str(self.folder / "no-state")}
        command = [sys.executable, "-I", "-B", str(HERE / "harness.py"), str(tree)]
        done = subprocess.run(command, env={**base, **env}, capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)

    def assertStock(self, stock, patched):
        for (scenario, expected), (_, found) in zip(stock["decisions"], patched["decisions"]):
            self.assertOutcome(expected, found, scenario)
        self.assertEqual(len(stock["decisions"]), len(patched["decisions"]))

    def assertOutcome(self, expected, found, scenario, but=()):
        """Alike in everything, `but` aside."""
        if found["chosen"] == DEFERRED:  # what was chosen shows only in the communicator that it built
            but = (*but, "chosen")
        self.assertEqual(
            *({key: made[key] for key in made if key not in but} for made in (expected, found)), scenario
        )

    def gained(self, stock, patched):
        return set(patched["modules"]) - set(stock["modules"])


class Unset(Trees):
    def test_stock_in_every_release(self):
        chosen, decisions = set(), 0
        for version in EVERY:
            with self.subTest(version):
                stock, patched = self.decide(self.tree(version)), self.decide(self.tree(version, "ours"))
                self.assertStock(stock, patched)
                self.assertEqual(self.gained(stock, patched), {"sgl_pcie", "sgl_pcie.flag"})
                self.assertEqual(patched["pcie_log"], [])
                self.assertEqual(patched["class"], [True, False], "CustomAllreduce is a class without a __new__")
                # The scenarios must tell: some open, some closed, by the NVLink test and by nothing else.
                by_name = {json.dumps(scenario): made for scenario, made in stock["decisions"]}
                closed = by_name['{"world": 4, "nvlink": false}']["comm"][1]["disabled"]
                opened = by_name['{"world": 4, "nvlink": true}']
                self.assertTrue(closed)
                self.assertTrue(opened["chosen"] == "CustomAllReduceV2" or opened["comm"][1]["disabled"] is False)
                chosen |= {str(made["chosen"]) for made in by_name.values()}
                decisions += len(by_name)
        self.assertLessEqual({"CustomAllreduce", "CustomAllReduceV2"}, chosen)
        print("\n%d releases, %d scenarios alike; torch: %s" % (len(EVERY), decisions, stock["torch"]), end=" ")

    @unittest.skipIf(importlib.util.find_spec("torch") is None, "PyTorch cannot be imported")
    def test_with_real_torch(self):
        for version in ERAS:
            with self.subTest(version):
                stock, patched = (
                    self.decide(self.tree(version, runtime), HARNESS_TORCH="real") for runtime in (None, "ours")
                )
                self.assertNotEqual(stock["torch"], "stood in")
                self.assertStock(stock, patched)
                self.assertEqual(self.gained(stock, patched), {"sgl_pcie", "sgl_pcie.flag"})
        print("\n%d releases alike with PyTorch %s" % (len(ERAS), stock["torch"]), end=" ")

    def test_v2_by_choice(self):
        """0.5.10 and 0.5.11 have V2 by choice, 0.5.12 and later V1 by choice."""
        for version, env in (
            ("0.5.10", {"SGLANG_USE_JIT_ALL_REDUCE": "1"}),
            (real.NEWEST, {"SGLANG_OPT_USE_CUSTOM_ALL_REDUCE_V2": "0"}),
        ):
            with self.subTest(version):
                self.assertStock(
                    self.decide(self.tree(version), **env), self.decide(self.tree(version, "ours"), **env)
                )


class StockAllTheSame(Trees):
    def test_values_that_change_nothing(self):
        for version in ERAS:
            stock = self.decide(self.tree(version))
            for env, lines in (
                ({FLAG: "0"}, []),
                ({FLAG: "0", BACKEND: "upstream"}, []),
                ({FLAG: "1"}, ["no verdict"]),
                ({FLAG: "1", BACKEND: "upstream"}, ["no verdict"]),
                ({FLAG: "on"}, ["none of 0, 1, unsafe"]),
                ({FLAG: "unsafe", BACKEND: "nccl"}, ["none of auto, peer, host, upstream"]),
            ):
                with self.subTest(version=version, env=env):
                    patched = self.decide(self.tree(version, "ours"), **env)
                    self.assertStock(stock, patched)
                    gained = {name for name in self.gained(stock, patched) if name.startswith("sgl_pcie")}
                    allowed = {"sgl_pcie", "sgl_pcie.flag"} | (LOOKED_UP if env[FLAG] == "1" else set())
                    self.assertEqual(gained, allowed)
                    self.assertEqual(len(patched["pcie_log"]), len(lines), patched["pcie_log"])
                    for (logger, _, line), part in zip(patched["pcie_log"], lines):
                        self.assertEqual(logger, "sgl_pcie")
                        self.assertIn(part, line)

    def test_uninstalled(self):
        for version in ERAS:
            with self.subTest(version):
                stock = self.decide(self.tree(version))
                patched = self.decide(self.tree(version, "none"), **V1_FOR_PCIE)
                self.assertStock(stock, patched)
                self.assertEqual(self.gained(stock, patched), set())
                self.assertEqual(patched["pcie_log"], [])

    def test_damaged(self):
        def truncated(package):
            (package / "__init__.py").write_text("def gate(")

        def emptied(package):
            (package / "__init__.py").write_text("")

        def zeroed(package):
            (package / "flag.py").write_bytes(bytes(100))

        def raising(package):
            (package / "flag.py").write_text("raise RuntimeError('broken')")

        for damage, said in ((truncated, True), (emptied, False), (zeroed, True), (raising, True)):
            for version in ("0.4.1.post7", "0.4.9.post4", real.NEWEST):
                with self.subTest(damage=damage.__name__, version=version):
                    patched = self.decide(self.tree(version, damage.__name__, damage), **V1_FOR_PCIE)
                    warned = [line for line in patched["pcie_log"] if line[1] == "WARNING"]
                    self.assertEqual(bool(warned), said)
                    for _, made in patched["decisions"]:
                        made["log"] = [line for line in made.get("log", ()) if "sgl-pcie" not in line[2]]
                    self.assertStock(self.decide(self.tree(version)), patched)


class Upstream(Trees):
    """unsafe with the backend upstream: SGLang's own kernel (V1) is allowed on PCIe; V2 never is."""

    def test_opens_v1_only(self):
        for version in ERAS:
            with self.subTest(version):
                stock = self.decide(self.tree(version))
                patched = self.decide(self.tree(version, "ours"), **V1_FOR_PCIE)
                opened = 0
                for (scenario, was), (_, made) in zip(stock["decisions"], patched["decisions"]):
                    self.assertEqual(was.get("v2"), made.get("v2"), "V2 stays closed")
                    was_on = "comm" in was and not was["comm"][1]["disabled"]
                    world = scenario.get("world", 4)
                    fits = world in (2, 4, 6, 8) and not scenario.keys() & {"same_node", "p2p", "backend", "library"}
                    if fits and not scenario.get("nvlink") and not was_on:
                        self.assertEqual(made["comm"][0], "CustomAllreduce", scenario)
                        self.assertIs(made["comm"][1]["disabled"], False)
                        self.assertIs(made["comm"][1]["full_nvlink"], True)
                        self.assertIn("init_custom_ar", [call[0] for call in made["calls"]])
                        self.assertEqual(made["should"][1], True)
                        opened += 1
                    elif version != "0.5.12":
                        # There V2 declines first and V1 is asked then: no change of outcome, but of the log.
                        # Two GPUs were served before; full_nvlink is true for them now, too.
                        self.assertOutcome(was, made, scenario, ("comm", "calls") if was_on else ())
                self.assertGreaterEqual(opened, 3)
                decided = [line for line in patched["pcie_log"] if line[1] == "WARNING"]
                self.assertEqual(len(decided), 1, decided)
                self.assertIn("nothing was proved", decided[0][2])

    def test_0_5_12_chooses_v2_first(self):
        """Stock 0.5.12 takes V2 without a look at the machine, and so has nothing on PCIe, even for two GPUs."""
        stock = dict((json.dumps(s), m) for s, m in self.decide(self.tree("0.5.12"))["decisions"])
        patched = dict(
            (json.dumps(s), m) for s, m in self.decide(self.tree("0.5.12", "ours"), **V1_FOR_PCIE)["decisions"]
        )
        two = '{"world": 2, "nvlink": false}'
        self.assertEqual(stock[two]["comm"][0], "CustomAllReduceV2")
        self.assertIs(stock[two]["comm"][1]["disabled"], True)
        self.assertEqual(patched[two]["comm"][0], "CustomAllreduce")
        self.assertIs(patched[two]["comm"][1]["disabled"], False)
        nvlink = '{"world": 4, "nvlink": true}'
        self.assertEqual(stock[nvlink]["raised"], patched[nvlink]["raised"], "V2 was built, with NVLink, in both")


# What "1" needs to look for a verdict; neither torch nor an extension is among them.
LOOKED_UP = {"sgl_pcie.verdict", "sgl_pcie.machine", "sgl_pcie.nvidia", "sgl_pcie.state"}


class HandOut(Trees):
    """A communicator of ours: here a stand-in, put where the real one is."""

    GROUPS = {"HARNESS_GROUPS": "serves,declines,fails,holds"}

    @staticmethod
    def built(package):
        (package / "communicator.py").write_text(COMMUNICATOR)
        for name in ("_sgl_pcie.abi3.so", "libpar.so"):
            (package / name).touch()

    def test_groups_get_it(self):
        for version in ERAS:
            with self.subTest(version):
                stock = self.decide(self.tree(version), **self.GROUPS)
                patched = self.decide(self.tree(version, "built", self.built), **self.GROUPS, **{FLAG: "unsafe"})
                self.assertStock(stock, patched)  # its groups are named "tp", which the stand-in declines
                self.assertEqual(patched["class"][0], True)
                groups, was = patched["groups"], stock["groups"]
                if version in ("0.4.1.post7", "0.4.2"):  # before 0.4.4.post4 nothing is handed out
                    self.assertEqual(groups, was)
                    continue
                self.assertEqual(groups["serves"]["comm"][0], "Communicator")
                self.assertIs(groups["serves"]["should"][0], True)
                self.assertEqual(groups["serves"]["calls"], [], "SGLang's own kernel was not set up")
                held = groups["holds"]["comm"][1]["stock"]
                self.assertEqual(held, was["holds"]["comm"][0], "for sizes not ours: what stock would have made")
                for name in ("declines", "fails"):
                    self.assertOutcome(was[name], groups[name], name)
                failed = [line for line in patched["pcie_log"] if line[1] == "ERROR"]
                self.assertEqual(len(failed), 1, failed)

    def test_without_a_verdict_the_other_ranks_are_told(self):
        """They may have found one, and would wait."""
        for version in ("0.4.9.post4", real.NEWEST):
            patched = self.decide(self.tree(version, "built", self.built), **self.GROUPS, **{FLAG: "1"})
            self.assertIn("sgl_pcie.communicator", patched["modules"])
            self.assertOutcome(
                self.decide(self.tree(version), **self.GROUPS)["groups"]["declines"],
                patched["groups"]["declines"],
                "declines",
            )

    def test_unset_does_not_look_at_it(self):
        for version in ("0.4.9.post4", real.NEWEST):
            patched = self.decide(self.tree(version, "built", self.built), **self.GROUPS)
            self.assertNotIn("sgl_pcie.communicator", patched["modules"])
            self.assertEqual(patched["groups"], self.decide(self.tree(version), **self.GROUPS)["groups"])


class ClassHook(unittest.TestCase):
    """To 0.5.5.post2 the class itself is called; what a __new__ must not break."""

    def test_the_class_stays_a_class(self):
        code = """
import copy, pickle, sys, types
sys.path.insert(0, %r)
torch = sys.modules["torch"] = types.ModuleType("torch")
torch.version = types.SimpleNamespace(cuda="12.8")
import sgl_pcie
sgl_pcie.decision = lambda: sgl_pcie.flag.Decision(sgl_pcie.COMMUNICATOR, 0)
ours = types.ModuleType("sgl_pcie.communicator")
ours.create = lambda group, device, make_stock: [group, device]
sys.modules["sgl_pcie.communicator"] = ours

class CustomAllreduce:
    def __init__(self, group, device, max_size=8):
        self.group = group

class Derived(CustomAllreduce):
    pass

stock = CustomAllreduce("before", 0)
sgl_pcie.hand_out_class(CustomAllreduce)
setattr(CustomAllreduce, "__del__", lambda *args: None)
assert CustomAllreduce(group="tp", device=1) == ["tp", 1] == CustomAllreduce("tp", 1, 16)
assert isinstance(Derived("tp", 1), Derived)
assert copy.copy(stock).group == copy.deepcopy(stock).group == pickle.loads(pickle.dumps(stock)).group == "before"
assert type(CustomAllreduce.__new__(CustomAllreduce)) is CustomAllreduce
try:
    CustomAllreduce()
except TypeError as error:
    assert "group" in str(error)
else:
    raise AssertionError("took no group")
torch.version.cuda = None
assert type(CustomAllreduce("tp", 1)) is CustomAllreduce, "not on ROCm"
""" % str(real.ROOT / "python")
        subprocess.run([sys.executable, "-I", "-B", "-c", code], check=True)


if __name__ == "__main__":
    unittest.main()
