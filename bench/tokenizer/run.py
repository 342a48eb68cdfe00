"""run.py [ROUNDS]: the tokenizer beside Hugging Face's `tokenizers` on one core, in turn: processor time, medians, their ratio.

The texts are this repository's pages, with a vocabulary trained on them; the same with accents on every vowel and in
Cyrillic, for the ways that ASCII does not take; and short random strings of all alphabets. Verified: of every text both
give the same numbers and offsets.
"""

import array
import hashlib
import json
import os
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile
import time

os.environ.update(RAYON_NUM_THREADS="1", TOKENIZERS_PARALLELISM="false")
ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/e2e"))

from tokenizers import BertWordPieceTokenizer  # noqa: E402

from tokenizer_kit import HARD, SPECIALS, random_text, theirs, write_folder  # noqa: E402

BENCH = pathlib.Path(os.environ.get("LOCKSTEP_BUILD", ROOT / "build/release")) / "bin/bench_tokenizer"
ACCENTS = str.maketrans("aeiou", "áèîõü")
CYRILLIC = str.maketrans("abcdefghijklmnopqrstuvwxyz", "абсдефгхийклмнопярстувшхыз")


def pages():
    lines = [line for folder in ("docs", "tutorials") for page in sorted((ROOT / folder).rglob("*.md"))
             for line in page.read_text().splitlines() if line.strip()]
    draw = random.Random(1)
    lines = lines * max(1, 20_000 // len(lines))
    draw.shuffle(lines)
    return lines[:20_000]


def texts():
    english, draw = pages(), random.Random(2)
    other = [random_text(draw) for _ in range(20_000)] + HARD
    return {
        "pages": english,
        "whole pages": ["  ".join(english[at:at + 200]) for at in range(0, len(english), 200)],
        "with accents": [line.translate(ACCENTS) for line in english],
        "Cyrillic": [line.translate(CYRILLIC) for line in english],
        "random": [" ".join(text.splitlines()) for text in other],
    }


def vocabulary(sets):
    trained = BertWordPieceTokenizer(lowercase=True)
    trained.train_from_iterator(sets["pages"] + sets["Cyrillic"], vocab_size=30_000, min_frequency=1, show_progress=False)
    known = trained.get_vocab()
    return SPECIALS + [token for token in sorted(known, key=known.get) if token not in SPECIALS]


def digest(encodings):
    everything = hashlib.sha256()
    for encoding in encodings:
        everything.update(array.array("i", encoding.ids))
        everything.update(array.array("I", [place for offsets in encoding.offsets for place in offsets]))
    return everything.hexdigest()


def timed(encode):
    begin = time.process_time()
    encodings = encode()
    return time.process_time() - begin, encodings


def ours(folder, file):
    out = subprocess.run([BENCH, folder, file, "3"], check=True, timeout=600, capture_output=True, text=True).stdout
    return json.loads(out)


def compare(folder, lines, rounds):
    file = folder / "texts"
    file.write_text("\n".join(lines) + "\n", encoding="utf-8", newline="")
    package = theirs(folder)
    seconds = {"ours": [], "encode": [], "encode_batch": []}
    for _ in range(rounds):
        mine = ours(folder, file)
        one, encodings = timed(lambda: [package.encode(line) for line in lines])
        if digest(encodings) != mine["sha256"]:
            raise SystemExit("the two do not give the same tokens")
        del encodings
        many, _ = timed(lambda: package.encode_batch(lines))
        seconds["ours"].append(statistics.median(mine["seconds"]))
        seconds["encode"].append(one)
        seconds["encode_batch"].append(many)
    return seconds, mine["tokens"]


def main():
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    sets = texts()
    print(f"{'texts':14}{'tokens':>9}{'ours ms':>9}{'MB/s':>7}{'encode ms':>11}{'batch ms':>10}{'encode/ours':>13}{'batch/ours':>12}")
    with tempfile.TemporaryDirectory() as folder:
        folder = write_folder(pathlib.Path(folder) / "model", vocabulary(sets))
        for name, lines in sets.items():
            seconds, tokens = compare(folder, lines, rounds)
            ms = {way: 1e3 * statistics.median(times) for way, times in seconds.items()}
            over = {way: statistics.median(a / b for a, b in zip(seconds[way], seconds["ours"])) for way in ms}
            rate = sum(len(line.encode()) for line in lines) / 1e3 / ms["ours"]
            print(f"{name:14}{tokens:9}{ms['ours']:9.1f}{rate:7.0f}{ms['encode']:11.1f}{ms['encode_batch']:10.1f}"
                  f"{over['encode']:13.1f}{over['encode_batch']:12.1f}", flush=True)


if __name__ == "__main__":
    main()
