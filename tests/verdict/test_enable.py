"""enable and disable: who sees the flag, what is refused, what is left."""

import json
import os
import subprocess
import sys
import unittest

from common import FLAG, GPUS, Case, profile, real, tree, verdict

READ = "from sgl_pcie import flag; f = flag.read(); print(f.value, f.source)"
DECIDE = "import logging; logging.basicConfig(level=0, stream=sys.stdout, format='%(message)s'); from sgl_pcie import flag; print(flag.decision().action)"


class Enabled(Case):
    def setUp(self):
        super().setUp()
        self.site = self.install("site")

    def prove(self, site=None):
        site = site or self.site
        bound = {**self.bound(site), "driver": "580.95.05"}
        self.write(site, "verdict.json", verdict(bound))
        self.write(site, "profile.json", profile(bound))

    def enable(self, site=None):
        self.prove(site)
        return self.cli("enable", "--site", site or self.site)

    def seen(self, *prefix, site=None, code=READ, **options):
        """What a process started in this way sees through the hook's module."""
        code = "import sys; sys.dont_write_bytecode = True; sys.path.insert(0, %r); %s" % (str(site or self.site), code)
        done = subprocess.run(
            [*prefix, "/usr/bin/python3", "-c", code], cwd="/", capture_output=True, text=True, timeout=60, check=False, **options
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout.strip()


class Visible(Enabled):
    def test_every_kind_of_process_sees_it(self):
        self.assertIn("enabled for", self.enable())
        one = "1 install"
        self.assertEqual(self.seen(env={}), one)
        self.assertEqual(self.seen("env", "-i"), one)
        self.assertEqual(self.seen("setsid"), one)
        login = "exec /usr/bin/python3 -c \"$0\""
        code = "import sys; sys.dont_write_bytecode = True; sys.path.insert(0, %r); %s" % (str(self.site), READ)
        shell = subprocess.run(["bash", "-lc", login, code], capture_output=True, text=True, check=True)
        self.assertEqual(shell.stdout.strip().splitlines()[-1], one)
        # systemd starts services with a PATH, no shell, no terminal, / as working directory and file descriptors closed.
        service = {"PATH": "/usr/sbin:/usr/bin", "INVOCATION_ID": "0", "SYSTEMD_EXEC_PID": "1"}
        self.assertEqual(self.seen("setsid", env=service, stdin=subprocess.DEVNULL, close_fds=True), one)

    def test_a_spawned_worker_sees_it(self):
        self.enable()
        script = self.scratch / "spawn.py"
        script.write_text(
            "import sys, multiprocessing\n"
            "sys.dont_write_bytecode = True\n"
            "sys.path.insert(0, %r)\n"
            "def work(queue):\n"
            "    from sgl_pcie import flag\n"
            "    queue.put(flag.read().value)\n"
            "if __name__ == '__main__':\n"
            "    context = multiprocessing.get_context('spawn')\n"
            "    queue = context.Queue()\n"
            "    worker = context.Process(target=work, args=(queue,))\n"
            "    worker.start(); print(queue.get(timeout=50)); worker.join()\n" % str(self.site)
        )
        done = subprocess.run(["env", "-i", "/usr/bin/python3", script], capture_output=True, text=True, timeout=60, check=True)
        self.assertEqual(done.stdout.strip(), "1")

    @unittest.skipIf(os.geteuid() != 0, "needs root")
    def test_another_user_sees_what_root_enabled(self):
        self.enable()
        self.assertEqual(self.seen("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"), "1 install")

    @unittest.skipIf(os.geteuid() != 0, "needs root")
    def test_a_third_users_flag_does_not_count_and_root_replaces_it(self):
        self.enable()
        flag = self.site / ".sgl-pcie" / "flag.json"
        os.chown(flag, 4711, 4711)
        self.assertEqual(self.seen(), "None unset")
        self.assertIn("enabled for", self.cli("enable", "--site", self.site))
        self.assertEqual(os.stat(flag).st_uid, 0)
        self.assertEqual(self.seen(), "1 install")

    @unittest.skipIf(os.geteuid() != 0, "needs root")
    def test_a_flag_that_others_may_not_read_is_said_and_written_anew(self):
        self.enable()
        flag = self.site / ".sgl-pcie" / "flag.json"
        flag.chmod(0o600)
        nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
        done = self.run_in([*nobody, real.CLI, "status", "--site", self.site], HOME="/nonexistent")
        self.assertIn("next: sudo chmod a+r '%s'" % flag, done.stderr)
        self.assertIn("enabled for every user", self.cli("enable", "--site", self.site))
        self.assertEqual(flag.stat().st_mode & 0o777, 0o644)
        self.assertEqual(self.seen(*nobody), "1 install")

    def test_the_variable_beats_it(self):
        self.enable()
        for value in ("0", "unsafe", "nonsense"):
            self.assertEqual(self.seen(env={FLAG: value}), value + " environment")
        told = self.cli("enable", "--site", self.site, **{FLAG: "0"})
        self.assertIn(FLAG + "=0 is set in this shell, and that wins", told)

    def test_set_to_nothing_is_not_unset(self):
        self.enable()
        self.assertEqual(self.seen(env={FLAG: ""}), "environment")  # and nothing before it
        text = self.cli("status", "--site", self.site, **{FLAG: ""})
        self.assertIn("set to nothing (environment)", text)
        self.assertIn("proved, but the flag is set to nothing, which is stock", text)
        self.assertIn(FLAG + "= is set in this shell, and that wins", self.cli("disable", "--site", self.site, **{FLAG: ""}))

    def test_two_environments_do_not_mix(self):
        other = self.install("other")
        self.enable()
        self.assertEqual(self.seen(site=other), "None unset")
        self.assertIn("no verdict", self.cli("enable", "--site", other, expect=1))

    def test_the_hook_follows_the_verdict(self):
        self.enable()
        self.assertEqual(self.python(self.site, DECIDE).splitlines()[-1], "communicator")
        (self.site / "sgl_pcie" / "libpar.so").write_text("rebuilt")
        told = self.python(self.site, DECIDE).splitlines()
        self.assertEqual(told[-1], "stock")
        self.assertIn("stale: libpar.so was", told[0])


class Removed(Enabled):
    def test_disable_removes_every_trace(self):
        before = tree(self.site)
        self.enable()
        self.assertNotEqual(tree(self.site), before)
        self.assertIn("disabled", self.cli("disable", "--site", self.site))
        self.assertEqual(tree(self.site), before)
        self.assertEqual(self.seen(), "None unset")

    def test_disable_twice_and_on_stock_is_nothing(self):
        self.assertIn("nothing to do", self.cli("disable", "--site", self.site))
        self.cli("revert", "--site", self.site)
        before = tree(self.site)
        self.assertIn("nothing to do", self.cli("disable", "--site", self.site))
        self.assertEqual(tree(self.site), before)

    def test_revert_takes_the_flag_along(self):
        self.enable()
        self.cli("revert", "--site", self.site)
        self.assertFalse((self.site / ".sgl-pcie").exists())

    def test_enable_twice_changes_nothing(self):
        self.enable()
        before = tree(self.site)
        self.assertIn("already enabled", self.cli("enable", "--site", self.site))
        self.assertEqual(tree(self.site), before)


class Refused(Enabled):
    def refused(self, words, expect=1):
        before = tree(self.site)
        self.assertIn(words, self.cli("enable", "--site", self.site, expect=expect))
        self.assertEqual(tree(self.site), before)

    def test_without_a_verdict(self):
        self.refused("no verdict for this machine")
        self.refused("verify")

    def test_with_a_stale_verdict(self):
        self.prove()
        (self.site / "sgl_pcie" / "libpar.so").write_text("rebuilt")
        self.refused("stale: libpar.so was")

    def test_with_a_low_level_or_nothing_passed(self):
        bound = {**self.bound(self.site), "driver": "1"}
        self.write(self.site, "profile.json", profile(bound))
        self.write(self.site, "verdict.json", verdict(bound, level=2))
        self.refused("level 2")
        for result in ("FAIL", "INCONCLUSIVE"):
            self.write(self.site, "verdict.json", verdict(bound, result=result))
            self.refused("nothing passed")

    def test_without_a_profile_that_wins(self):
        bound = {**self.bound(self.site), "driver": "1"}
        self.write(self.site, "verdict.json", verdict(bound))
        self.refused("no profile shows that it is faster here")
        self.write(self.site, "profile.json", profile(bound, us=16.0))
        self.refused("nothing is faster here")
        self.write(self.site, "profile.json", profile({**bound, "libpar.so": "0" * 64}))
        self.refused("the profile is stale")

    def test_a_profile_of_transports_that_did_not_pass(self):
        """SGLang would serve by start values, which nobody measured here, or not at all."""
        bound = {**self.bound(self.site), "driver": "1"}
        tables = profile(bound)["tables"]
        push = [{**table, "entries": [{**table["entries"][0], "algorithm": "push-one-shot"}]} for table in tables]
        slow = [{**table, "entries": [{**table["entries"][0], "us": 16.0}]} for table in tables]
        self.write(self.site, "verdict.json", verdict(bound))
        for tables, words in (
            (push, "nothing with the transports that the verdict passed"),
            (push + slow, "nothing is faster here"),
        ):
            self.write(self.site, "profile.json", {**profile(bound), "tables": tables})
            self.refused(words)
            self.assertFalse(json.loads(self.cli("status", "--site", self.site, "--json"))["profile"]["wins"])
        self.write(self.site, "profile.json", {**profile(bound), "tables": push})
        told = json.loads(self.cli("enable", "--site", self.site, "--json", expect=1))
        self.assertIn("sgl-pcie bench", told["next"])
        text = self.cli("status", "--site", self.site)
        self.assertIn("fresh (nothing was measured with what the verdict passed)", text)
        self.assertIn("proved, not measured", text)

    def test_a_verdict_of_sglangs_own_kernel_alone(self):
        bound = {**self.bound(self.site), "driver": "1"}
        proved = verdict(bound)
        proved["results"][0]["backend"] = proved["pairs"][0]["backend"] = "upstream"
        self.write(self.site, "verdict.json", proved)
        for tables in ([], profile(bound)["tables"]):
            self.write(self.site, "profile.json", {**profile(bound), "tables": tables})
            self.refused("SGLang's own kernel alone")
            self.assertIn("SGLANG_PCIE_AR_BACKEND=upstream is for that one", self.cli("status", "--site", self.site))

    def test_not_built_and_not_patched(self):
        self.prove()
        (self.site / "sgl_pcie" / "_sgl_pcie.abi3.so").unlink()
        self.refused("_sgl_pcie.abi3.so is missing", expect=5)  # SGLang would stay as stock
        self.assertIn("not built whole, _sgl_pcie.abi3.so is missing", self.cli("status", "--site", self.site))
        (self.site / "sgl_pcie" / "libpar.so").unlink()
        self.refused("not built", expect=5)
        self.cli("revert", "--site", self.site)
        self.refused("not patched", expect=5)

    def test_where_the_patch_is_gone_cut_short_or_changed(self):
        """The runtime alone is no patch: pip puts SGLang's own files over ours and leaves it."""
        self.prove()
        files = [(self.site / path, real.pristine("0.5.23", path)) for path in real.RELEASES["0.5.23"]["files"]]
        for file, text in files[:1]:
            file.write_bytes(text)
            self.refused("partly patched: 1 of 2 files", expect=5)
        for file, text in files:
            file.write_bytes(text)
        self.refused("patch gone", expect=5)
        self.refused("next: sgl-pcie apply --site", expect=5)
        files[0][0].write_bytes(b"# mine\n")
        self.refused("differs from every text", expect=4)

    def test_an_nvml_that_does_not_answer(self):
        """All at once: each gives it a minute."""
        said = "NVML does not answer: a GPU may hang"
        self.prove()
        wanted = {
            "status": (0, "  " + said),
            "enable": (1, "stale: " + said),
            "doctor": (1, said),
            "verify": (8, said),
        }
        running = {
            command: subprocess.Popen(
                [real.CLI, command, "--site", self.site],
                env={**self.environment, "FAKE_HANG": "1"},
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
            for command in wanted
        }
        for command, (code, words) in wanted.items():
            told = running[command].communicate(timeout=100)[0]
            with self.subTest(command):
                self.assertEqual(running[command].returncode, code, told)
                self.assertIn(words, told)

    def test_while_a_write_is_pending(self):
        self.prove()
        (self.site / ".sgl-pcie" / "journal.stage").write_text("{}")
        self.refused("recover", expect=10)


class Status(Enabled):
    def status(self, **environment):
        return json.loads(self.cli("status", "--site", self.site, "--json", **environment))

    def test_fresh_and_stale(self):
        self.assertEqual(self.status()["verdict"]["reasons"], ["no verdict for this machine"])
        self.enable()
        told = self.status()
        self.assertEqual(told["verdict"], {"present": True, "fresh": True, "result": "PASS", "reasons": []})
        self.assertEqual(told["flag"], {"value": "1", "source": "install"})
        self.assertIn("fresh (PASS of level 3: host 2)", self.cli("status", "--site", self.site))
        told = self.status(FAKE_GPUS=GPUS[0])
        self.assertEqual((told["verdict"]["fresh"], told["verdict"]["result"]), (False, "PASS"))
        self.assertIn("gpu 1 was %s, is absent" % GPUS[1], told["verdict"]["reasons"])
        self.assertIn("gpu 1 was", self.cli("status", "--site", self.site, FAKE_GPUS=GPUS[0]))

    def test_the_sizes_are_those_of_what_passed(self):
        """The first table is the best of all transports; of these only host passed."""
        bound = {**self.bound(self.site), "driver": "1"}
        (host,) = profile(bound)["tables"]
        push = {**host, "entries": [{"max_bytes": 16 << 20, "algorithm": "push-one-shot", "us": 6.0, "stock_us": 9.0}]}
        self.write(self.site, "verdict.json", verdict(bound))
        self.write(self.site, "profile.json", {**profile(bound), "tables": [push, host]})
        self.assertIn("fresh (2 GPUs: to 64 KiB)", self.cli("status", "--site", self.site))
        self.assertIn("enabled for", self.cli("enable", "--site", self.site))
        self.write(self.site, "profile.json", {**profile(bound), "tables": [push]})
        self.assertIn("enabled, but not measured as it is now", self.cli("status", "--site", self.site))

    def test_a_variable_that_makes_it_stock_is_said(self):
        self.enable()
        for passed in ("host", "auto"):
            self.assertEqual(self.status(SGLANG_PCIE_AR_BACKEND=passed)["message"], "enabled: nothing to do")
        for refused in ("peer", "upstream"):
            told = self.status(SGLANG_PCIE_AR_BACKEND=refused)
            self.assertIn("'%s', of which nothing was proved" % refused, told["message"])
            self.assertEqual(told["next"], "unset SGLANG_PCIE_AR_BACKEND")
        for name, value, words in (("BACKEND", "foo", "none of auto, peer"), ("TIMEOUT_S", "5s", "no number of seconds")):
            name = "SGLANG_PCIE_AR_" + name
            told = self.status(**{name: value})
            self.assertIn("enabled, but in this shell %s is '%s', %s" % (name, value, words), told["message"])
            self.assertEqual((told["next"], told["result"], told["exit_code"]), ("unset " + name, "ok", 0))

    def test_a_profile_that_does_not_count_is_said(self):
        self.enable()
        told = self.status()
        self.assertEqual(told["profile"], {"present": True, "fresh": True, "wins": True, "reason": None})
        (path,) = self.state.glob("*/profile.json")
        content = json.loads(path.read_text())
        for spoil in ({"tables": [{**content["tables"][0], "world": 1}]}, {"tables": None}, {"bound": {}}):
            path.write_text(json.dumps({**content, **spoil}))
            told = self.status()
            self.assertEqual((told["profile"]["present"], told["profile"]["wins"]), (False, False))
            self.assertIn("damaged: field ", told["profile"]["reason"])
            self.assertRegex(self.cli("status", "--site", self.site), r"profile  none that counts \(.*profile.json: damaged: field")
            self.assertIn("damaged", self.python(self.site, "from sgl_pcie import machine, profile; print(profile.load(machine.now())[1])"))
        path.unlink()
        self.assertIn("profile  none for this machine\n", self.cli("status", "--site", self.site))


if __name__ == "__main__":
    assert sys.version_info >= (3, 8)
    unittest.main()
