"""The tasks of texts through the program: files to tokens, training, what is kept, eval, predict, and bad input."""

import json
import os
import re
import sys

import pytest

from conftest import SOURCE
from text_kit import LABELS, nli_rows, reviews, write_csv, write_jsonl, write_model, write_nli, write_vocabulary
from train_kit import assert_predicted, checkpoints, metrics, sets

pytestmark = pytest.mark.about("text", "tasks", "data")

torch = pytest.importorskip("torch", reason="makes the model that reads tokens")
BertWordPieceTokenizer = pytest.importorskip("tokenizers").BertWordPieceTokenizer

CONFIG = """
run: {{name: text, seed: 1}}
task: {{name: text, file: {file}, text: [{text}], vocabulary: {folder}/words, max_length: 24}}
data: {{batch_size: 8, workers: {workers}, bucket: 64}}
model: {{name: torchscript, path: {folder}/model.pt}}
optim: {{name: adam, lr: 0.05}}
train: {{epochs: 6, log_every: 10, eval_every: 6}}
"""


@pytest.fixture
def place(tmp_path):
    """A folder with a vocabulary and a model of two classes."""
    write_model(tmp_path / "model.pt", write_vocabulary(tmp_path / "words"), 2)
    return tmp_path


@pytest.fixture
def train(place, lockstep, run):
    """train(FILE, WORDS..., SETTING=..., text="text") -> Result, in the folder."""
    def go(file, *words, text="text", config=CONFIG, check=True, **settings):
        path = place / "config.yaml"
        path.write_text(config.format(file=file, text=text, folder=place, workers=1))
        return run(lockstep, "train", path, *words, *sets(**settings), cwd=place, check=check)
    return go


def accuracy(place, name="text"):
    return [row for row in metrics(place / f"runs/{name}") if row.get("event") == "epoch"][-1]["accuracy"]


def model_inputs(place, texts, length=24):
    """What Hugging Face's tokenizer makes of them: int64 [n, 3, tokens]."""
    tokenizer = BertWordPieceTokenizer(str(place / "words/vocab.txt"), lowercase=True)
    tokenizer.enable_truncation(length)
    tokenizer.enable_padding()
    made = tokenizer.encode_batch(texts)
    return torch.tensor([[one.ids, one.type_ids, one.attention_mask] for one in made])


@pytest.mark.about("exported")
def test_an_exported_model_gets_the_rows_that_it_names(place, train):
    """As a TorchScript model that picks them itself, to the same bits."""
    words = len((place / "words/vocab.txt").read_text().splitlines())

    class Named(torch.nn.Module):
        def __init__(self, size: int):
            super().__init__()
            self.table, self.out = torch.nn.Embedding(size, 8), torch.nn.Linear(8, 2)

        def forward(self, attention_mask, input_ids):
            mask = attention_mask.unsqueeze(2).to(torch.float32)
            return self.out((self.table(input_ids) * mask).sum(1) / mask.sum(1))

    class Picking(Named):
        def forward(self, x):
            mask = x[:, 2].unsqueeze(2).to(torch.float32)
            return self.out((self.table(x[:, 0]) * mask).sum(1) / mask.sum(1))

    dynamic = {0: torch.export.Dim.AUTO, 1: torch.export.Dim.AUTO}
    rows = (torch.ones(3, 5, dtype=torch.int64), torch.ones(3, 5, dtype=torch.int64))
    torch.manual_seed(0)
    torch.export.save(torch.export.export(Named(words), rows, dynamic_shapes=(dynamic, dynamic)), place / "model.pt2")
    torch.manual_seed(0)
    torch.jit.script(Picking(words)).save(str(place / "model.pt"))
    write_csv(place / "reviews.csv", reviews(40))
    train("reviews.csv", train__max_steps=6, run__name="script")
    train("reviews.csv", train__max_steps=6, run__name="exported", model__name="exported", model__path=place / "model.pt2")
    script, exported = ({name: tensor for name, tensor in torch.load(checkpoints(place / f"runs/{name}")[-1])["model"].items()}
                        for name in ("script", "exported"))
    assert script.keys() == exported.keys() and all(torch.equal(script[name], exported[name]) for name in script)


def probabilities(place, texts):
    """What Python gives for them, with the weights of the newest checkpoint."""
    model = torch.jit.load(str(place / "model.pt"))
    model.load_state_dict(torch.load(checkpoints(place / "runs/text")[-1], weights_only=True)["model"])
    return model(model_inputs(place, texts)).softmax(1)


def test_a_csv_of_ones_own_is_learnt_and_told(train, place, lockstep, run, mpirun):
    write_csv(place / "reviews.csv", reviews(400))
    said = train("reviews.csv").output
    assert "train: 320 samples; class bad: 160 (50.0 %), class good: 160 (50.0 %)" in said
    assert accuracy(place) > 0.95
    # eval needs the file alone, and says the same at any number of ranks
    words = ["eval", place / "config.yaml", "--checkpoint", place / "runs/text"]
    alone, two = (call(lockstep, *words, cwd=place, check=True).stdout
                  for call in (run, lambda *args, **how: mpirun(2, *args, **how)))
    assert "80 samples" in alone and "confusion" in alone
    assert two == alone
    # predict reads lines, tables and JSON; no file of the training is asked for
    os.remove(place / "reviews.csv")
    texts = ["a kind song", "it was AWFUL, my day", "", "the " * 60 + "nice"]
    wanted = probabilities(place, texts)
    (place / "new.txt").write_text("".join(text + "\n" for text in texts))
    write_csv(place / "new.csv", [{"stars": i, "text": text} for i, text in enumerate(texts)])
    write_jsonl(place / "new.jsonl", [{"text": text} for text in texts])
    ask = ["predict", place / "config.yaml", "--checkpoint", place / "runs/text", "--input"]
    for name in ("new.txt", "new.csv", "new.jsonl"):
        assert_predicted(run(lockstep, *ask, place / name, cwd=place, check=True).stdout, wanted, ["bad", "good"])
    typed = "".join(text + "\n" for text in texts)
    assert_predicted(run(lockstep, *ask, "-", cwd=place, check=True, input=typed).stdout, wanted, ["bad", "good"])
    document = json.loads(run(lockstep, *ask, "-", "--format", "json", cwd=place, check=True, input="a nice day").stdout)
    assert document["predictions"][0]["class"] == "good"


def test_mnli_counts_matched_and_mismatched(place, lockstep, run, mpirun):
    rows = write_nli(place / "mnli")
    write_model(place / "model.pt", place / "words", 3)
    config = place / "config.yaml"
    config.write_text(f"""
run: {{name: mnli}}
task: {{name: mnli, vocabulary: {place}/words, max_length: 32}}
data: {{root: {place}/mnli, batch_size: 8}}
model: {{name: torchscript, path: {place}/model.pt}}
optim: {{name: adam, lr: 0.05}}
train: {{epochs: 2, log_every: 5, eval_every: 1}}
""")
    said = run(lockstep, "train", config, cwd=place, check=True).output
    assert "60 samples" in said and "3 with the label - left out" in said
    told = {}
    for ranks in (1, 3):
        told[ranks] = mpirun(ranks, lockstep, "eval", config, "--checkpoint", place / "runs/mnli", cwd=place, check=True).stdout
    assert told[1] == told[3]
    sizes = {name: sum(row["gold_label"] != "-" for row in rows[f"dev_{name}"]) for name in ("matched", "mismatched")}
    parts = re.findall(r"(matched|mismatched)\nloss +(\S+)\naccuracy +(\S+)\ncorrect +(\d+) of (\d+)", told[1])
    assert [(name, int(of)) for name, _, _, _, of in parts] == list(sizes.items())
    assert all(f"{int(right) / int(of):.4f}" == share for _, _, share, right, of in parts)
    last = [row for row in metrics(place / "runs/mnli") if row.get("event") == "epoch"][-1]
    assert f"{last['accuracy']:.4f}" == parts[0][2]  # in training the matched set counts
    # what each set counts, Python counts too
    model = torch.jit.load(str(place / "model.pt"))
    model.load_state_dict(torch.load(checkpoints(place / "runs/mnli")[-1], weights_only=True)["model"])
    for (name, loss, _, right, _) in parts:
        kept = [row for row in rows[f"dev_{name}"] if row["gold_label"] != "-"]
        output = model(model_inputs(place, [(row["sentence1"], row["sentence2"]) for row in kept], 32))
        truth = torch.tensor([LABELS.index(row["gold_label"]) for row in kept])
        assert (output.argmax(1) == truth).sum() == int(right)
        assert torch.nn.functional.cross_entropy(output, truth).item() == pytest.approx(float(loss), abs=1e-4)
    answer = run(lockstep, "predict", config, "--checkpoint", place / "runs/mnli", "--input", "-", cwd=place, check=True,
                 input="the song was kind\tit was bad\n").stdout
    assert answer.startswith("sample,class,p(entailment),p(neutral),p(contradiction)\n0,")


@pytest.mark.full
def test_mnli_reads_the_same_from_each_form(place, lockstep, run):
    write_model(place / "model.pt", place / "words", 3)
    losses = {}
    for form in ("jsonl", "txt", "tsv"):
        write_nli(place / form, form)
        config = place / f"{form}.yaml"
        config.write_text(f"""
run: {{name: {form}}}
task: {{name: mnli, vocabulary: {place}/words}}
data: {{root: {place}/{form}, batch_size: 8}}
model: {{name: torchscript, path: {place}/model.pt}}
train: {{epochs: 1, log_every: 1}}
""")
        run(lockstep, "train", config, cwd=place, check=True)
        losses[form] = [row["loss"] for row in metrics(place / f"runs/{form}") if row.get("event") == "step"]
    assert losses["jsonl"] and losses["jsonl"] == losses["txt"] == losses["tsv"]


def test_a_small_bert_learns_from_the_texts_alone(lockstep, run, tmp_path):
    run(sys.executable, SOURCE / "examples/text/vocabulary.py", SOURCE / "data/reviews/reviews.csv", "words", cwd=tmp_path, check=True)
    run(lockstep, "train", "configs/text_small.yaml", cwd=tmp_path, check=True)
    assert [row["accuracy"] for row in metrics(tmp_path / "runs/text_small") if row.get("event") == "epoch"][-1] > 0.9


def test_numbers_are_come_near_to(train, place, lockstep, run):
    rows = [{"text": row["text"], "stars": 45_000 if row["label"] == "good" else 10_000} for row in reviews(200)]
    write_csv(place / "stars.csv", rows)
    write_model(place / "model.pt", place / "words", 1)
    train("stars.csv", task__kind="regression")
    last = [row for row in metrics(place / "runs/text") if row.get("event") == "epoch"][-1]
    assert last["mae"] < 10_000 and last["eval_loss"] < 1
    words = [place / "config.yaml", *sets(task__kind="regression"), "--checkpoint", place / "runs/text"]
    assert float(re.search(r"mae +(\S+)", run(lockstep, "eval", *words, cwd=place, check=True).stdout)[1]) == \
        pytest.approx(last["mae"], rel=1e-4)
    answers = run(lockstep, "predict", *words, "--input", "-", cwd=place, check=True, input="a kind song\nan awful song\n").stdout
    good, bad = (float(line.split(",")[1]) for line in answers.splitlines()[1:])
    assert good > 30_000 > 25_000 > bad


# What is kept from run to run.

def kept(folder):
    return sorted(folder.glob("*.tokens"))


def test_tokens_are_made_once(train, place):
    write_csv(place / "reviews.csv", reviews(60))
    first = train("reviews.csv", train__max_steps=1)
    assert "made" in first.output and len(kept(place)) == 1
    state = os.stat(kept(place)[0])
    again = train("reviews.csv", train__max_steps=1, run__name="again")
    assert "tokens read from" in again.output
    assert os.stat(kept(place)[0]).st_ino == state.st_ino
    # other settings are other tokens, and so is another content
    assert "made" in train("reviews.csv", train__max_steps=1, run__name="long", task__max_length=30).output
    assert len(kept(place)) == 2
    write_csv(place / "reviews.csv", reviews(60, seed=1))
    assert "made" in train("reviews.csv", train__max_steps=1, run__name="new").output
    (place / "words/vocab.txt").write_text((place / "words/vocab.txt").read_text().replace("nice\n", "neat\n"))
    assert "made" in train("reviews.csv", train__max_steps=1, run__name="words").output


# Bad input: what, where, what to do.

GOOD = "text,label\na nice day,good\nan awful day,bad\na fine day,good\na bad day,bad\n"


WRONG = [
    ("a.csv", GOOD.replace(",bad", ",good"), {}, ["every row has the same label", "task.label"]),
    ("a.csv", GOOD + "no label,\n", {}, ["the label is missing", "a.csv:6"]),
    ("a.csv", GOOD, {"task__kind": "regression"}, ["'good' is not a finite number", "a.csv:2"]),
    ("a.csv", GOOD, {"task__eval_file": "eval.csv"}, ["the label 'meh' is not one of the 2 classes", "eval.csv:3"]),
    ("a.csv", "id,text,by,label\n1,a,b,x\n2,c,d,y\n", {"task__text": "[]"}, ["3 columns besides the label", "task.text"]),
]


def test_what_is_wrong_is_said(train, place):
    (place / "eval.csv").write_text("text,label\na,good\nb,meh\n")
    failures = []
    for name, content, settings, words in WRONG:
        (place / name).write_text(content)
        result = train(name, check=False, **settings)
        if result.returncode != 2 or not all(word in result.stderr for word in words):
            failures.append((words, result.output))
    assert not failures
    assert not (place / "runs/text/checkpoints").exists()


def test_a_model_with_classes_in_another_order_is_refused_before_the_first_step(place, run, lockstep):
    bert_kit = pytest.importorskip("bert_kit", reason="transformers makes the folder")
    bert_kit.make_model(id2label={0: "good", 1: "bad"}).save_pretrained(place / "bert")
    write_csv(place / "reviews.csv", reviews(60))
    config = place / "config.yaml"
    config.write_text(f"""
task: {{name: text, file: reviews.csv, text: [text], vocabulary: {place}/words, max_length: 24}}
model: {{name: bert, path: {place}/bert}}
""")
    result = run(lockstep, "train", config, cwd=place)
    assert result.returncode == 2 and "classes are good, bad, and the task's bad, good" in result.stderr, result.output
    assert not (place / "runs").exists()


def test_texts_that_the_vocabulary_does_not_know_are_said(train, place):
    write_csv(place / "foreign.csv", [{**row, "text": row["text"] + " слово" * 4} for row in reviews(40)])
    said = train("foreign.csv", train__max_steps=1).stderr
    assert re.search(r"warning: foreign\.csv: \d\d % of the tokens are \[UNK\]", said), said


def test_predict_refuses_another_vocabulary_and_half_a_pair(place, train, run, lockstep):
    rows = nli_rows(40, 1, True)
    write_csv(place / "pairs.csv", [{"a": row["sentence1"], "b": row["sentence2"], "label": row["gold_label"]} for row in rows])
    write_model(place / "model.pt", place / "words", 3)
    train("pairs.csv", text="a, b", train__max_steps=2)
    ask = [lockstep, "predict", place / "config.yaml", "--checkpoint", place / "runs/text", "--input", "-"]
    half = run(*ask, cwd=place, input="one\ttwo\nonly one\n")
    assert half.returncode == 2, half.output
    assert "a line has one text, but the model takes two" in half.stderr and "--> standard input:2" in half.stderr
    (place / "words/vocab.txt").write_text((place / "words/vocab.txt").read_text().replace("nice\n", "neat\n"))
    other = run(*ask, cwd=place, input="one\ttwo\n")
    assert other.returncode == 2, other.output
    assert "trained with another vocabulary" in other.stderr and "task.vocabulary" in other.stderr
