"""What is trained on: each data set is made, or unpacked, when it is first needed, the same each time."""

import csv
import gzip
import json
import random
import subprocess

import launch

SPECIALS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
WORDS = 5000
BERT_SMALL = dict(num_hidden_layers=4, hidden_size=512, num_attention_heads=8, intermediate_size=2048)  # google/bert_uncased_L-4_H-512_A-8

# Images are made by the Python that has Pillow: noise that is smoothed, brighter in another corner for each class.
PAINT = """
import pathlib, sys, numpy, PIL.Image
root, draw = pathlib.Path(sys.argv[1]), numpy.random.default_rng(0)
for part, count in (("train", 400), ("val", 8)):
    for label in range(4):
        folder = root / part / f"class{label}"
        folder.mkdir(parents=True)
        for number in range(count):
            pixels = draw.integers(0, 160, (8, 8, 3))
            pixels[label // 2 * 4:label // 2 * 4 + 4, label % 2 * 4:label % 2 * 4 + 4] += 80
            image = PIL.Image.fromarray(pixels.astype("uint8")).resize((64, 64), PIL.Image.BICUBIC)
            image.save(folder / f"{number}.png")
"""
# A model with weights as transformers draws them.
DRAW = """
import json, sys, torch, transformers
torch.manual_seed(0)
model = transformers.BertForSequenceClassification(transformers.BertConfig(num_labels=2, **json.loads(sys.argv[2])))
model.save_pretrained(sys.argv[1])
"""


def in_python(python, *words):
    try:
        subprocess.run([python, "-c", *words], check=True, capture_output=True, text=True, timeout=120)
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
        raise launch.Failed(f"cannot generate its data: {(error.stderr or str(error)).strip()[-500:]}") from error


def digits(folder, python):
    """As torchvision wants to find them."""
    raw = folder / "MNIST/raw"
    raw.mkdir(parents=True)
    for packed in (launch.ROOT / "data/mnist").glob("*-ubyte.gz"):
        (raw / packed.stem).write_bytes(gzip.decompress(packed.read_bytes()))


def images(folder, python):
    """train and val, each with a folder of PNG files for a class."""
    in_python(python, PAINT, folder)


def write_reviews(path, count, seed):
    """Texts of 6 to 60 words; one of two words tells the label."""
    draw = random.Random(seed)
    with open(path, "w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["text", "label"])
        for number in range(count):
            words = [f"w{draw.randrange(2, WORDS)}" for _ in range(draw.randint(5, 59))]
            words.insert(draw.randrange(len(words)), f"w{number % 2}")
            rows.writerow([" ".join(words), ("bad", "good")[number % 2]])


def texts(folder, python):
    """train.csv and eval.csv, and BERT-small in a Hugging Face folder."""
    write_reviews(folder / "train.csv", 2000, 0)
    write_reviews(folder / "eval.csv", 32, 1)
    model, vocabulary = folder / "model", [*SPECIALS, *(f"w{number}" for number in range(WORDS))]
    model.mkdir()
    in_python(python, DRAW, model, json.dumps({**BERT_SMALL, "vocab_size": len(vocabulary)}))
    (model / "vocab.txt").write_text("".join(f"{word}\n" for word in vocabulary))
    (model / "tokenizer_config.json").write_text(json.dumps({"do_lower_case": True}))


MADE = {"digits": digits, "images": images, "texts": texts}
