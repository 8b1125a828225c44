"""The lines of decode.py as a table: median of the repeats, and the cost of one all-reduce inside the step.

table.py FILE...
"""

import json
import statistics
import sys


def read(paths):
    times, captured = {}, {}
    for path in paths:
        with open(path) as file:
            for line in map(json.loads, file):
                if line.get("ranks", 0) > line.get("gpus", 0):
                    print("%s: %d ranks on %d GPU(s); its times say nothing" % (line["run"], line["ranks"], line["gpus"]))
                if "step_ms" in line:
                    times.setdefault((line["run"], line["mode"], line["batch"]), []).append(line)
                elif "captured" in line:
                    captured[line["run"], line["mode"]] = sum(line["captured"].values())
    return times, captured


def main():
    times, captured = read(sys.argv[1:])
    graphs = len({batch for _, _, batch in times}) or 1
    median = {key: statistics.median(l["graph_ms"] for l in lines) for key, lines in times.items()}
    print(
        "%-10s %-11s %5s %9s %9s %9s %9s %7s"
        % ("run", "mode", "batch", "tok/s", "step ms", "graph ms", "us/call", "share")
    )
    for (run, mode, batch), lines in times.items():
        calls = captured.get((run, mode), 0) / graphs
        limit = median.get((run, "none", batch))
        graph = median[run, mode, batch]
        cost = (graph - limit) * 1e3 / calls if limit and calls and mode != "none" else None
        print(
            "%-10s %-11s %5d %9.1f %9.3f %9.3f %9s %7s"
            % (
                run,
                mode,
                batch,
                statistics.median(l["tokens_per_s"] for l in lines),
                statistics.median(l["step_ms"] for l in lines),
                graph,
                "%.2f" % cost if cost is not None else "-",
                "%.0f %%" % (100 * (graph - limit) / graph) if cost is not None else "-",
            )
        )


if __name__ == "__main__":
    main()
