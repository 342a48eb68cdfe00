#!/usr/bin/env python3
"""Writes a vocabulary for a small BERT, which learns from your texts alone: the most frequent words, and all characters.

    python3 vocabulary.py reviews.csv words                 # words/vocab.txt, for task.vocabulary
    python3 vocabulary.py train.jsonl words --size 8000     # at most so many entries (default 4000)

It reads any text file, with its header and labels, so that every character in it has an entry. A word outside the vocabulary
becomes several pieces. Words are in lower case, as BERT's uncased tokenizer has them.
"""
import argparse
import collections
import gzip
import json
import pathlib
import re
import unicodedata

options = argparse.ArgumentParser(description=__doc__.split("\n")[0])
options.add_argument("file", help="the texts: CSV, TSV, JSON Lines or plain text, gzipped or not, in UTF-8")
options.add_argument("folder", help="the folder to write")
options.add_argument("--size", type=int, default=4000, help="entries (default 4000)")
asked = options.parse_args()

read = gzip.open if asked.file.endswith(".gz") else open
with read(asked.file, "rt", encoding="utf-8-sig") as file:
    text = file.read()
if re.search(r"\.jsonl?(\.gz)?$", asked.file.lower()):
    text = "\n".join(str(value) for line in text.split("\n") if line.strip() for value in json.loads(line).values())
text = unicodedata.normalize("NFD", text.lower())
text = "".join(letter for letter in text if unicodedata.category(letter) != "Mn")  # without accents
words = collections.Counter(re.findall(r"\w+", text))
letters = sorted(set(text) - set(" \t\r\n"))
entries = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *letters, *("##" + letter for letter in letters if letter.isalnum())]
if len(entries) > asked.size:
    options.error(f"the characters alone make {len(entries)} entries: use --size {2 * len(entries)}, and set vocab_size to it")
for word, count in words.most_common():
    if len(entries) >= asked.size or count < 2:
        break
    if len(word) > 1:
        entries.append(word)
folder = pathlib.Path(asked.folder)
folder.mkdir(parents=True, exist_ok=True)
(folder / "vocab.txt").write_text("\n".join(entries) + "\n", encoding="utf-8")
(folder / "tokenizer_config.json").write_text('{"do_lower_case": true}\n')
print(f"{folder / 'vocab.txt'}: {len(entries)} entries")
