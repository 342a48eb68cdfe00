"""BERT beside transformers': the same names, bits, draws and steps, from its folders and back into them."""

import pytest

pytest.importorskip("transformers")

import torch  # noqa: E402
from bert_kit import *  # noqa: E402, F403
from train_kit import assert_same_tensors, metrics, newest, sets, write_config  # noqa: E402


@pytest.fixture(scope="module")
def peer(build_dir):
    program = build_dir / "bin/bert_peer"
    if not program.exists():
        pytest.skip("bert_peer is not built")
    return program


@pytest.fixture
def logits(peer, run, tmp_path):
    """logits(folder, input, classes) -> as lockstep gives them."""
    def ask(folder, input, classes=len(LABELS)):
        input = input[:, :, :int(input[:, 2].sum(1).max())].contiguous()
        save_file({"input": input}, tmp_path / "in.safetensors")
        run(peer, "logits", folder, classes, tmp_path / "in.safetensors", tmp_path / "out.safetensors", check=True)
        return load_file(tmp_path / "out.safetensors")["logits"]
    return ask


@pytest.mark.parametrize("more", [
    {},
    dict(hidden_act="gelu_new", num_attention_heads=6, num_hidden_layers=1),
    dict(hidden_act="relu", hidden_size=32, num_attention_heads=1, layer_norm_eps=1e-5, pad_token_id=None),
    dict(hidden_act="gelu_pytorch_tanh", type_vocab_size=3),
], ids=str)
@pytest.mark.parametrize("padded", [True, False], ids=["padded", "whole"])
def test_logits_equal_transformers(more, padded, logits, tmp_path):
    model = spread(make_model(**more))
    model.save_pretrained(tmp_path / "folder")
    input = texts(7, padded=padded)
    ours, theirs = logits(tmp_path / "folder", input), logits_of(model, input)
    assert theirs.abs().max() > 0.01
    assert torch.equal(ours, theirs), (ours - theirs).abs().max()


@pytest.mark.parametrize("more", [{}, dict(initializer_range=0.5, pad_token_id=3)], ids=str)
def test_random_weights_are_those_that_transformers_draws(more, peer, run, tmp_path):
    words = [f"{key}={value}" for key, value in {**SIZES, **more}.items()]
    run(peer, "draw", 11, len(LABELS), tmp_path / "drawn.safetensors", *words, check=True)
    ours, theirs = load_file(tmp_path / "drawn.safetensors"), make_model(seed=11, **more).state_dict()
    assert set(ours) == set(theirs)
    for name, tensor in theirs.items():
        assert torch.equal(ours[name], tensor), name


CONFIG = """
run: {{name: bert, seed: 5}}
task: {{name: {task}, options: {{file: {data}}}}}
data: {{batch_size: 4, shuffle: false, workers: 0}}
model: {{name: bert, path: {folder}}}
optim: {{name: adamw, lr: 0.001, no_decay: [bias, LayerNorm]}}
train: {{mode: single, epochs: 2, log_every: 1, eval_every: 0}}
"""
TEXTS = 40


@pytest.fixture
def train(build_dir, lockstep, run, tmp_path):
    """train(folder, **settings) -> the losses that lockstep logs, and its last checkpoint."""
    def ask(folder, **settings):
        save_file({"input": texts(TEXTS), "target": labels(TEXTS)}, tmp_path / "data.safetensors")
        config = write_config(tmp_path, CONFIG.format(task=build_dir / "lib/tokens_task.so", folder=folder,
                                                      data=tmp_path / "data.safetensors"))
        run(lockstep, "train", config, *sets(**settings), cwd=tmp_path, check=True, env={"OMP_NUM_THREADS": "1"})
        return [line["loss"] for line in metrics(tmp_path / "runs/bert") if line["event"] == "step"], \
            newest(tmp_path / "runs/bert")
    return ask


# name -> (the model's own, Python's loop, lockstep's settings)
TRAININGS = {
    "still": (dict(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0), {}, {}),
    "dropout": (dict(hidden_dropout_prob=0.2, attention_probs_dropout_prob=0.1, classifier_dropout=0.3), {}, {}),
    "warmup": ({}, dict(warmup=6), dict(schedule__name="linear_warmup", schedule__warmup_steps=6)),
    "accumulate": ({}, dict(accumulate=2, steps=10), dict(train__accumulate=2)),
    "bf16": ({}, dict(precision="bf16"), dict(train__precision="bf16")),
}


@pytest.mark.parametrize("name", TRAININGS)
def test_steps_equal_transformers(name, train, tmp_path):
    more, loop, settings = TRAININGS[name]
    folder = tmp_path / "folder"
    spread(make_model(**more)).save_pretrained(folder)
    model = transformers.BertForSequenceClassification.from_pretrained(folder)
    theirs, optimizer = train_in_python(model, texts(TEXTS), labels(TEXTS), **loop)
    ours, saved = train(folder, **settings)
    assert len(ours) == len(theirs) and max(theirs) - min(theirs) > 0.1
    assert ours == theirs
    assert_same_tensors(dict(saved["model"]), dict(model.state_dict()))
    state = optimizer.state_dict()
    assert_same_tensors(saved["optimizer"]["state"], state["state"])
    assert [group["params"] for group in saved["optimizer"]["param_groups"]] == \
        [group["params"] for group in state["param_groups"]]
    optimizer.load_state_dict(saved["optimizer"])


def test_an_exported_folder_is_transformers_own(train, logits, lockstep, run, tmp_path):
    folder = tmp_path / "folder"
    spread(make_model(classifier_dropout=0.3)).save_pretrained(folder)
    (folder / "vocab.txt").write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *map(str, range(115))]))
    (folder / "tokenizer_config.json").write_text('{"do_lower_case": false}')
    _, saved = train(folder, train__max_steps=3, optim__lr=0.01)
    export = [lockstep, "export", tmp_path / "config.yaml", "--checkpoint", tmp_path / "runs/bert", "--output", "out"]
    run(*export, cwd=tmp_path, check=True)
    out = tmp_path / "out"
    assert sorted(path.name for path in out.iterdir()) == ["config.json", "model.safetensors", "tokenizer_config.json",
                                                           "vocab.txt"]
    loaded, info = transformers.AutoModelForSequenceClassification.from_pretrained(out, output_loading_info=True)
    assert type(loaded).__name__ == "BertForSequenceClassification" and not any(info.values())
    assert loaded.config.id2label == dict(enumerate(LABELS)) and loaded.config.classifier_dropout == 0.3
    for name, tensor in loaded.state_dict().items():
        assert torch.equal(tensor, saved["model"][name]), name
    assert torch.equal(logits(out, texts(5)), logits_of(loaded, texts(5)))
    assert transformers.AutoTokenizer.from_pretrained(out).convert_tokens_to_ids("7") == 12
    again = run(*export, cwd=tmp_path)
    assert again.returncode == 2 and "the folder is there, and not empty" in again.stderr
