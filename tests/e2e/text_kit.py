"""Small sets of texts, a vocabulary for them, and a model that reads tokens: what the tests of texts share."""

import csv
import json
import random

SPECIALS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
GOOD = "bright calm clever fine good great kind lovely nice sweet warm wise".split()
BAD = "awful bad bitter cold cruel dull grim harsh mean nasty sour vile".split()
PLAIN = "the a film song day place and it was very so my your of in at this that story".split()
GENRES = ["fiction", "government", "telephone"]
LABELS = ["entailment", "neutral", "contradiction"]


def write_vocabulary(folder, lower=True):
    folder.mkdir(parents=True, exist_ok=True)
    letters = [chr(c) for c in range(ord("a"), ord("z") + 1)] + list(".,!?'-0123456789")
    words = SPECIALS + GOOD + BAD + PLAIN + letters + ["##" + c for c in letters if c.isalpha()]
    (folder / "vocab.txt").write_text("\n".join(dict.fromkeys(words)) + "\n")
    (folder / "tokenizer_config.json").write_text(json.dumps({"do_lower_case": lower}))
    return folder


def reviews(count, seed=0):
    """Texts of several lengths, and what they are: told by one word of each."""
    draw = random.Random(seed)
    rows = []
    for i in range(count):
        label = ("good", "bad")[i % 2]
        words = draw.choices(PLAIN, k=draw.randint(2, 20))
        words.insert(draw.randrange(len(words)), draw.choice(GOOD if label == "good" else BAD))
        rows.append({"text": " ".join(words), "label": label})
    return rows


def write_csv(path, rows, delimiter=","):
    with open(path, "w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), delimiter=delimiter)
        writer.writeheader()
        writer.writerows(rows)
    return path


def write_jsonl(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def nli_rows(count, seed, train):
    """Pairs in MultiNLI's shape; the training set has one annotator's label, the others five, and some no gold one."""
    draw = random.Random(seed)
    rows = []
    for i in range(count):
        first = draw.choices(PLAIN, k=draw.randint(3, 12))
        word, gold = draw.choice(GOOD), LABELS[i % 3]
        second = {"entailment": word, "neutral": draw.choice(PLAIN), "contradiction": draw.choice(BAD)}[gold]
        if not train and i % 10 == 9:
            gold = "-"
        sentences = [" ".join(first + [word]), f'it was "{second}'] if i % 7 == 0 else [" ".join(first + [word]), second]
        rows.append({"gold_label": gold, "sentence1_binary_parse": "( a ( b ) )", "sentence2_binary_parse": "( c )",
                     "sentence1_parse": "(ROOT (S a))", "sentence2_parse": "(ROOT (S c))", "sentence1": sentences[0],
                     "sentence2": sentences[1], "promptID": str(i), "pairID": f"{i}n", "genre": draw.choice(GENRES),
                     "annotator_labels": [gold] if train else [gold] * 5})
    return rows


def write_nli(root, form="jsonl", train=60, dev=30):
    """MultiNLI as its authors ship it (jsonl, txt), or as GLUE does (tsv). Returns the rows of each set."""
    root.mkdir(parents=True, exist_ok=True)
    sets = {"train": nli_rows(train, 1, True), "dev_matched": nli_rows(dev, 2, False), "dev_mismatched": nli_rows(dev + 1, 3, False)}
    for name, rows in sets.items():
        if form == "jsonl":
            write_jsonl(root / f"multinli_1.0_{name}.jsonl", rows)
        elif form == "txt":
            heads = [key for key in rows[0] if key != "annotator_labels"]
            lines = ["\t".join(heads + [f"label{i}" for i in range(1, 6)])]
            lines += ["\t".join([row[key] for key in heads] + row["annotator_labels"]) for row in rows]
            (root / f"multinli_1.0_{name}.txt").write_text("\n".join(lines) + "\n")
        else:
            heads = ["promptID", "pairID", "genre", "sentence1_binary_parse", "sentence2_binary_parse", "sentence1_parse",
                     "sentence2_parse", "sentence1", "sentence2"]
            lines = ["\t".join(["index"] + heads + ["label1", "gold_label"])]
            lines += ["\t".join([str(i)] + [row[key] for key in heads] + [row["annotator_labels"][0], row["gold_label"]])
                      for i, row in enumerate(rows)]
            (root / f"{name}.tsv").write_text("\n".join(lines) + "\n")
    return sets


def write_model(path, vocabulary, outputs):
    """A TorchScript model over [n, 3, tokens]: the mean of the tokens' embeddings, by text, and a linear layer."""
    import torch

    class Bag(torch.nn.Module):
        def __init__(self, size: int, outputs: int):
            super().__init__()
            self.table = torch.nn.Embedding(size, 8)
            self.kinds = torch.nn.Embedding(2, 8)
            self.out = torch.nn.Linear(8, outputs)

        def forward(self, x):
            mask = x[:, 2].unsqueeze(2).to(torch.float32)
            rows = self.table(x[:, 0]) * self.kinds(x[:, 1])
            return self.out((rows * mask).sum(1) / mask.sum(1))

    torch.manual_seed(0)
    size = len((vocabulary / "vocab.txt").read_text().splitlines())
    torch.jit.script(Bag(size, outputs)).save(str(path))
    return path
