"""A real launch_server of the patched install: under load, against one with NCCL, and with a rank killed.

    server.py --pack PACK --seconds 300 [--tp 2] [--flag unsafe] [--backend host] [--parts load killed] [--out FILE]

1. Starts `sglang.launch_server` with our all-reduce; fixed prompts, greedily, one at a time: the reference.
2. The same prompts from a second server, with NCCL, on the same GPUs: equal to the reference, else where the first
   difference is and how close the two tokens were.
3. Bounded load for the given time, and the same prompts again. Then the second server, idle since, ends.
4. kill -9 of the last rank while it decodes one request: how long until the client knew and until nothing was left,
   who noticed, whether every token that had come is the reference's. SGLang's ranks talk over gloo before every step,
   whose connection ends with the process: SGLang mostly ends itself before the GPU has waited for long.

--parts: load, which is 1 to 3; killed, which is 4 with a server that 1 started. Ranks may share GPUs (shared.py); the
model has fewer layers then, since two servers with all their ranks are on them, and still fewer when a rank is killed,
since the ranks' kernels take turns.
Prints one JSON object and exits with 1 if something was not as it should be. Needs the standard library and psutil.
"""

import argparse
import http.client
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time

import psutil
import shared

HERE = os.path.dirname(os.path.abspath(__file__))
HOST = "127.0.0.1"
VOCABULARY = 151936
# Of a prompt under load; through the sockets that NCCL has where ranks share a GPU longer ones take seconds.
LENGTHS = (5, 20, 50, 90) if shared.RANKS else (5, 50, 300, 1200)
PROMPTS, ANSWER = 6, 64  # of the reference
# Tokens of the request that is decoded when the rank is killed; it is killed after a quarter of them.
LONG = 100 if shared.RANKS else 400


# --- a server ---------------------------------------------------------------------------------------------------------


class Server:
    def __init__(self, options, name, port, environment, arguments=()):
        self.name, self.port = name, port
        self.log = os.path.join(options.logs, "server-%s.log" % name)
        command = [sys.executable, "-m", "sglang.launch_server", "--host", HOST, "--port", str(port)]
        command += ["--model-path", os.path.join(options.pack, "model"), "--load-format", "dummy"]
        command += ["--tp", str(options.tp), "--dtype", "bfloat16", "--attention-backend", "triton"]
        command += ["--sampling-backend", "pytorch", "--grammar-backend", "none", "--disable-radix-cache"]
        command += ["--disable-flashinfer-autotune", "--enforce-disable-flashinfer-allreduce-fusion"]
        command += ["--context-length", "4096", "--max-running-requests", "16", "--max-total-tokens", "30000"]
        command += ["--cuda-graph-bs", "1", "4", "16", "--decode-log-interval", "500"]
        command += ["--mem-fraction-static", "0.6" if shared.RANKS else "0.4"]
        command += ["--disable-piecewise-cuda-graph", "--nccl-port", str(port + 1000), *arguments]
        environment = {**os.environ, **environment}
        if options.layers:
            command += ["--json-model-override-args", json.dumps({"num_hidden_layers": options.layers})]
        environment["PYTHONPATH"] = ":".join([environment.get("PYTHONPATH", ""), options.plugins, HERE])
        with open(self.log, "w") as log:
            self.process = subprocess.Popen(command, env=environment, stdout=log, stderr=log, start_new_session=True)
        self.started = time.time()

    def wait(self, limit):
        """Until it answers; False if it ended or the limit passed."""
        while time.time() < self.started + limit and self.process.poll() is None:
            try:
                status, _ = request(self.port, "GET", "/health_generate", None, 10)
                if status == 200:
                    return True
            except OSError:
                pass
            time.sleep(0.5)
        return False

    def family(self):
        """Its processes, the launcher included, with their titles."""
        found = {}
        try:
            for process in [psutil.Process(self.process.pid), *psutil.Process(self.process.pid).children(True)]:
                try:
                    found[process.pid] = " ".join(process.cmdline()[:1])
                except psutil.Error:
                    pass
        except psutil.Error:
            pass
        return found

    def text(self):
        with open(self.log, errors="replace") as file:
            return file.read()

    def end(self):
        for pid in self.family() or [self.process.pid]:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        self.process.wait()


def request(port, method, path, body, limit):
    connection = http.client.HTTPConnection(HOST, port, timeout=limit)
    try:
        connection.request(method, path, body and json.dumps(body), {"Content-Type": "application/json"})
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()


def generate(port, ids, tokens, limit=120, **more):
    """(token ids, log probabilities or None) of a greedy answer."""
    sampling = {"temperature": 0, "max_new_tokens": tokens, "ignore_eos": True}
    body = {"input_ids": ids, "sampling_params": sampling, **more}
    status, answer = request(port, "POST", "/generate", body, limit)
    if status != 200:
        raise RuntimeError("HTTP %d: %.300s" % (status, answer.decode(errors="replace")))
    answer = json.loads(answer)
    return answer["output_ids"], answer["meta_info"]


def stream(port, ids, tokens, seen):
    """Calls seen(token ids so far) as they come; returns how it ended."""
    sampling = {"temperature": 0, "max_new_tokens": tokens, "ignore_eos": True}
    body = {"input_ids": ids, "sampling_params": sampling, "stream": True}
    connection = http.client.HTTPConnection(HOST, port, timeout=60)
    try:
        connection.request("POST", "/generate", json.dumps(body), {"Content-Type": "application/json"})
        response = connection.getresponse()
        for line in response:
            text = line.decode(errors="replace").strip()
            if text == "data: [DONE]":
                return "done"
            if text.startswith("data: "):
                answer = json.loads(text[6:])
                if "error" in answer:
                    return "error: %.300s" % answer["error"]
                seen(answer["output_ids"])
        return "the connection ended"
    except (OSError, http.client.HTTPException) as error:
        return "%s: %s" % (type(error).__name__, error)
    finally:
        connection.close()


def plugins():
    """A folder that makes weights.py and shared.py plugins of SGLang."""
    folder = tempfile.mkdtemp()
    info = os.path.join(folder, "gpu_sglang-1.dist-info")
    os.mkdir(info)
    with open(os.path.join(info, "METADATA"), "w") as file:
        file.write("Metadata-Version: 2.1\nName: gpu-sglang\nVersion: 1\n")
    with open(os.path.join(info, "entry_points.txt"), "w") as file:
        file.write("[sglang.srt.plugins]\nweights = weights:register\nshared = shared:register\n")
    return folder


# --- the reference ----------------------------------------------------------------------------------------------------


def prompt(seed, length):
    numbers = random.Random(seed)
    return [numbers.randrange(3, VOCABULARY) for _ in range(length)]


def reference(port):
    """Greedy answers, one request at a time, with the two best log probabilities of each token."""
    answers = []
    for i in range(PROMPTS):
        ids, meta = generate(port, prompt(i, 40 + 90 * i), ANSWER, return_logprob=True, top_logprobs_num=2)
        best = [[(round(top[0], 5), top[1]) for top in tops] for tops in meta["output_top_logprobs"]]
        answers.append({"ids": ids, "best": best})
    return answers


def compare(a, b):
    """Sentences about the first difference of each prompt; empty if there is none. Log probabilities count, too."""
    found = []
    for i, (x, y) in enumerate(zip(a, b)):
        off = 0.0
        for at, (s, t) in enumerate(zip(x["ids"], y["ids"])):
            theirs = {token: value for value, token in y["best"][at]}
            off = max([off] + [abs(value - theirs[token]) for value, token in x["best"][at] if token in theirs])
            if s != t:
                text = "prompt %d, token %d: best two %s and %s; to here they differ by up to %.5f"
                found.append(text % (i, at, x["best"][at], y["best"][at], off))
                break
        else:
            if x["best"] != y["best"]:
                at = next(n for n, (s, t) in enumerate(zip(x["best"], y["best"])) if s != t)
                found.append("prompt %d: same tokens, log probabilities from token %d: %s and %s" % (i, at, x["best"][at], y["best"][at]))
    return found


# --- load -------------------------------------------------------------------------------------------------------------


class Load:
    """Clients that ask one thing after the other until told to stop."""

    def __init__(self, port, clients):
        self.port, self.stopped = port, threading.Event()
        self.requests = self.tokens = 0
        self.errors, self.lock = [], threading.Lock()
        self.threads = [threading.Thread(target=self.client, args=(n,), daemon=True) for n in range(clients)]
        self.begun = time.time()
        for thread in self.threads:
            thread.start()

    def client(self, number):
        numbers = random.Random(1000 + number)
        while not self.stopped.is_set():
            asked = numbers.choice((8, 32, 64, 128, 200))
            try:
                ids, _ = generate(self.port, prompt(numbers.random(), numbers.choice(LENGTHS)), asked)
                wrong = len(ids) != asked or not all(0 <= token < VOCABULARY for token in ids)
                with self.lock:
                    self.requests, self.tokens = self.requests + 1, self.tokens + len(ids)
                    if wrong:
                        self.errors.append("%d tokens of %d, or outside the vocabulary" % (len(ids), asked))
            except (OSError, RuntimeError, ValueError, LookupError, http.client.HTTPException) as error:
                with self.lock:
                    self.errors.append("%.300r" % error)
                if len(self.errors) > 20:
                    return

    def stop(self):
        self.stopped.set()
        for thread in self.threads:
            thread.join(60)
        seconds = time.time() - self.begun
        return {
            "clients": len(self.threads),
            "seconds": round(seconds, 1),
            "requests": self.requests,
            "tokens": self.tokens,
            "tokens_per_s": round(self.tokens / seconds, 1),
            "errors": self.errors[:5],
        }


# --- a rank is killed -------------------------------------------------------------------------------------------------


def gpu_memory():
    try:
        command = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"]
        return [int(n) for n in subprocess.run(command, capture_output=True, text=True, timeout=20).stdout.split()]
    except (OSError, ValueError, subprocess.SubprocessError):
        return []


def kill_a_rank(server, tp, before, check):
    ids = prompt(77, 200)
    expected, _ = generate(server.port, ids, LONG)
    family = server.family()
    victims = [pid for pid, title in family.items() if re.search(r"scheduler.*TP%d" % (tp - 1), title)]
    check(len(victims) == 1, "no single process of rank %d in %s" % (tp - 1, sorted(family.values())))
    if len(victims) != 1:
        return {"family": family}
    tokens, killed = [], []

    def seen(so_far):
        tokens[:] = so_far
        if len(so_far) >= LONG // 4 and not killed:
            killed.append(time.time())
            os.kill(victims[0], signal.SIGKILL)

    ended = stream(server.port, ids, LONG, seen)
    client_s = time.time() - (killed or [server.started])[0]
    until = time.time() + 30
    while time.time() < until and any(map(alive, family)):
        time.sleep(0.05)
    gone_s = time.time() - (killed or [server.started])[0]
    left = [title for pid, title in family.items() if alive(pid)]
    for pid in filter(alive, family):
        os.kill(pid, signal.SIGKILL)
    time.sleep(2)
    lines = server.text().splitlines()
    named = [line[-300:] for line in lines if re.search(r"sgl-pcie: rank", line)]
    noticed = [line[-200:] for line in lines if re.search(r"closed by peer|CUDA error|crashed|SIGQUIT", line)]
    # Python's and SGLang's own files of shared memory outlive any kill -9 (psm_, sem.loky-); ours have no name.
    new = sorted(set(os.listdir("/dev/shm")) - set(before["shm"]))
    shm = [name for name in new if not name.startswith(("psm_", "sem.loky-"))]
    memory = gpu_memory()
    check(bool(killed), "the stream ended before the rank was killed: %s" % ended)
    check(ended != "done", "the request ended as if nothing had happened")
    check(tokens == expected[: len(tokens)], "tokens came that are not the reference's")
    check(client_s < 10, "the client knew after %.1f s" % client_s)
    check(not left, "processes left after %.1f s: %s" % (gone_s, left))
    check(bool(named or noticed), "no error in the log")
    check(all(n < b + 64 for n, b in zip(memory, before["memory"])), "GPU memory %s, was %s" % (memory, before["memory"]))
    check(not shm, "left in /dev/shm: %s" % shm)
    return {
        "tokens_before": len(tokens),
        "of": LONG,
        "client": ended,
        "client_s": round(client_s, 2),
        "all_gone_s": round(gone_s, 2),
        "named": named[:4],
        "noticed": noticed[:4],
        "shm_of_sglang": len(new) - len(shm),
        "memory": memory,
        "memory_before": before["memory"],
    }


def alive(pid):
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


# --- all of it --------------------------------------------------------------------------------------------------------


def run(options, out, check):
    before = {"shm": os.listdir("/dev/shm"), "memory": gpu_memory()}
    environment = {"SGLANG_FORCE_CUSTOM_AR_PCIE": options.flag, "SGLANG_PCIE_AR_BACKEND": options.backend}
    ours = Server(options, "-".join(["ours", *options.parts]), options.port, environment)
    try:
        up = ours.wait(options.start_limit)
        out["start_s"] = round(time.time() - ours.started, 1)
        out["log"] = [l[-400:] for l in ours.text().splitlines() if re.search(r"PCIe all-reduce|stock all-reduce", l)][:4]
        check(up, "the server did not come: %s" % ours.text()[-1500:])
        check(any("PCIe all-reduce for this group" in line for line in out["log"]), "our communicator is not in use")
        if up and "load" in options.parts:
            serve(options, ours, out, check)
        if up and "killed" in options.parts:
            out["killed"] = kill_a_rank(ours, options.tp, before, check)
    finally:
        ours.end()


def serve(options, ours, out, check):
    """Against a server with NCCL, and under load."""
    ready = len(ours.text())
    first = reference(ours.port)
    out["reference"] = [answer["ids"][:6] for answer in first[:3]]
    out["repeated"] = compare(first, reference(ours.port))
    nccl = Server(
        options, "nccl", options.port + 1, {"SGLANG_FORCE_CUSTOM_AR_PCIE": "0"}, ["--disable-custom-all-reduce"]
    )
    try:
        up = nccl.wait(options.start_limit)
        check(up, "the NCCL server did not come: %s" % nccl.text()[-1500:])
        if up:
            theirs = reference(nccl.port)
            out["nccl"], out["nccl_repeated"] = compare(first, theirs), compare(theirs, reference(nccl.port))
            out["compared"] = "%d prompts, %d tokens each" % (PROMPTS, ANSWER)
        load = Load(ours.port, options.clients)
        time.sleep(options.seconds)
        out["load"] = load.stop()
        check(not load.errors and load.requests > 0, "errors under load")
        out["after_load"] = compare(first, reference(ours.port))
        check(not out["repeated"] and not out["after_load"], "our own answers are not repeatable")
        # Before the other server ends, which takes ours with it under MPS. Before it answers, ours says what it lacks.
        since = ours.text()[ready:]
        wrong = [l[-300:] for l in since.splitlines() if re.search(r"Traceback|ERROR|sgl-pcie: rank", l)]
        out["log_errors"] = wrong[:4]
        check(not wrong, "errors in the server's log")
    finally:
        nccl.end()


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--pack", required=True)
    parser.add_argument("--seconds", type=float, default=300, help="of load")
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--tp", type=int, default=2)
    parser.add_argument("--flag", default="unsafe")
    parser.add_argument("--backend", default="host")
    parser.add_argument("--port", type=int, default=31000)
    parser.add_argument("--parts", nargs="+", choices=("load", "killed"), default=["load", "killed"])
    parser.add_argument("--layers", type=int, help="of the model; default: all; where ranks share GPUs 16, or 4")
    parser.add_argument("--start-limit", type=float, default=150)
    parser.add_argument("--logs", help="folder for the servers' logs; default PACK/out")
    parser.add_argument("--out")
    options = parser.parse_args()
    options.pack = os.path.abspath(options.pack)
    options.logs = options.logs or os.path.join(options.pack, "out")
    if shared.RANKS and not options.layers:
        options.layers = 16 if "load" in options.parts else 4
    options.plugins = plugins()
    out, failed = {"tp": options.tp, "gpus": len(gpu_memory()), "layers": options.layers}, []

    def check(ok, what):
        if not ok:
            failed.append(what)

    try:
        run(options, out, check)
    except Exception as error:
        failed.append("%.600r" % error)
    out.update(failed=failed, ok=not failed)
    text = json.dumps(out)
    if options.out:
        with open(options.out, "a") as file:
            file.write(text + "\n")
    print("SERVER", text[:6000], flush=True)
    return 0 if out["ok"] else 1


if __name__ == "__main__":
    sys.exit(main())
