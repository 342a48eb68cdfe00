"""run.py [ROUNDS] [SAMPLES]: a file of pairs to batches, beside `datasets` + `tokenizers` on one core, in turn.

Cold: tokens are made and kept; warm: they are found. Each is a process of its own, timed from its first line of work (the
imports of neither count) to the last batch. Verified: all batches are equal, number for number. The pairs are this
repository's pages, in MultiNLI's JSON Lines with its parses; `datasets` is installed into build/text_peers.
"""

import json
import os
import pathlib
import random
import shutil
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("LOCKSTEP_BUILD", ROOT / "build/release"))
PEERS = ROOT / "build/text_peers"
BATCH = "32"
LABELS = ["contradiction", "entailment", "neutral"]
sys.path.insert(0, str(ROOT / "bench/tokenizer"))

from run import pages, vocabulary, write_folder  # noqa: E402


def install():
    if not (PEERS / "datasets").exists():
        subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", "--target", PEERS, "datasets==4.4.1"], check=True)


def parse(text):
    """As long as MultiNLI's."""
    return "(ROOT (S " + " ".join(f"(NN {word})" for word in text.split()) + "))"


def write_samples(path, count):
    draw, lines = random.Random(3), [line for line in pages() if 20 < len(line) < 400]
    with open(path, "w", encoding="utf-8") as file:
        for i in range(count):
            first, second = draw.choice(lines), draw.choice(lines)[:80]
            file.write(json.dumps({"annotator_labels": [LABELS[i % 3]], "genre": "fiction", "gold_label": LABELS[i % 3],
                                   "pairID": f"{i}n", "promptID": str(i), "sentence1": first,
                                   "sentence1_binary_parse": parse(first), "sentence1_parse": parse(first),
                                   "sentence2": second, "sentence2_binary_parse": parse(second),
                                   "sentence2_parse": parse(second)}) + "\n")


def one_core():
    os.sched_setaffinity(0, {sorted(os.sched_getaffinity(0))[-1]})


def timed(command, *words):
    env = {**os.environ, "OMP_NUM_THREADS": "1", "RAYON_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false",
           "HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "PYTHONPATH": str(PEERS)}
    done = subprocess.run([*command, *words], env=env, preexec_fn=one_core, capture_output=True, text=True, timeout=1200)
    if done.returncode:
        raise SystemExit(done.stderr)
    return json.loads(done.stdout.splitlines()[-1])


def main():
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    count = int(sys.argv[2]) if len(sys.argv) > 2 else 20_000
    install()
    ways = {"ours": [BUILD / "bin/bench_text"], "theirs": [sys.executable, ROOT / "bench/text/peer.py"]}
    seconds = {(way, state): [] for way in ways for state in ("cold", "warm")}
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        write_samples(folder / "pairs.jsonl", count)
        words = write_folder(folder / "model", vocabulary({"pages": pages(), "Cyrillic": []}))
        for _ in range(rounds):
            digests = set()
            for way, command in ways.items():
                shutil.rmtree(folder / way, ignore_errors=True)
                for state in ("cold", "warm"):
                    told = timed(command, folder / "pairs.jsonl", words, folder / way, BATCH)
                    seconds[way, state].append(told["seconds"])
                    digests.add(told["sha256"])
            if len(digests) != 1:
                raise SystemExit("the batches differ")
        size = (folder / "pairs.jsonl").stat().st_size / 1e6
    print(f"{count} pairs, {size:.0f} MB of JSON Lines, {told['tokens'] // 3} tokens with padding; {rounds} rounds, medians")
    for state in ("cold", "warm"):
        ours, theirs = seconds["ours", state], seconds["theirs", state]
        ratio = statistics.median(b / a for a, b in zip(ours, theirs))
        print(f"{state}: ours {statistics.median(ours):.2f} s, datasets + tokenizers {statistics.median(theirs):.2f} s, ratio {ratio:.1f}")


if __name__ == "__main__":
    main()
