"""BERT beside transformers': the same names, bits, draws and steps, from its folders and back into them."""

import pytest

pytest.importorskip("transformers")

import torch  # noqa: E402
from bert_kit import *  # noqa: E402, F403
from train_kit import assert_same_tensors, metrics, newest, sets, write_config  # noqa: E402

pytestmark = pytest.mark.about("models", "text")


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


@pytest.mark.parametrize("more, padded", [
    ({}, True),
    (dict(hidden_act="relu", hidden_size=32, num_attention_heads=1, layer_norm_eps=1e-5, pad_token_id=None), False),
    (dict(hidden_act="gelu_pytorch_tanh", type_vocab_size=3), True),
], ids=str)
def test_logits_equal_transformers(more, padded, logits, tmp_path):
    model = spread(make_model(**more))
    model.save_pretrained(tmp_path / "folder")
    input = texts(7, padded=padded)
    ours, theirs = logits(tmp_path / "folder", input), logits_of(model, input)
    assert theirs.abs().max() > 0.01
    assert torch.equal(ours, theirs), (ours - theirs).abs().max()


def test_random_weights_are_those_that_transformers_draws(peer, run, tmp_path):
    more = dict(initializer_range=0.5, pad_token_id=3)
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
def config_for(build_dir, tmp_path):
    """config_for(folder) -> a config that trains its model on made-up texts."""
    def write(folder):
        save_file({"input": texts(TEXTS), "target": labels(TEXTS)}, tmp_path / "data.safetensors")
        return write_config(tmp_path, CONFIG.format(task=build_dir / "lib/tokens_task.so", folder=folder,
                                                    data=tmp_path / "data.safetensors"))
    return write


@pytest.fixture
def train(config_for, lockstep, run, tmp_path):
    """train(folder, **settings) -> the losses that lockstep logs, and its last checkpoint."""
    def ask(folder, **settings):
        run(lockstep, "train", config_for(folder), *sets(**settings), cwd=tmp_path, check=True, env={"OMP_NUM_THREADS": "1"})
        left = tmp_path / "runs" / settings.get("run__name", "bert")
        return [line["loss"] for line in metrics(left) if line["event"] == "step"], newest(left)
    return ask


# name -> (the model's own, Python's loop, lockstep's settings)
TRAININGS = {
    "dropout": (dict(hidden_dropout_prob=0.2, attention_probs_dropout_prob=0.1, classifier_dropout=0.3), {}, {}),
    "warmup": ({}, dict(warmup=6), dict(schedule__name="linear_warmup", schedule__warmup_steps=6)),
    "accumulate": ({}, dict(accumulate=2, steps=10), dict(train__accumulate=2)),
    "checkpointing": ({}, dict(checkpointing=True, precision="bf16"),
                      dict(model__checkpointing=True, train__precision="bf16")),
}


@pytest.mark.parametrize("name", [pytest.param(name, marks=() if name in ("dropout", "accumulate") else pytest.mark.full)
                                  for name in TRAININGS])
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


@pytest.mark.full  # three processes of Python that import transformers: 70 s
@pytest.mark.mpi
def test_three_ranks_equal_transformers_under_ddp(config_for, lockstep, mpirun, tmp_path):
    """A vocabulary that makes the word embedding the longest gradient: its place in DDP's buckets is part of the sum."""
    folder, out = tmp_path / "folder", tmp_path / "theirs.safetensors"
    spread(make_model(vocab_size=1000, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)).save_pretrained(folder)
    config = config_for(folder)
    mpirun(3, lockstep, "train", config, *sets(train__mode="ddp", train__epochs=5, train__max_steps=20), cwd=tmp_path, check=True)
    torch.multiprocessing.spawn(ddp_rank, (3, folder, tmp_path / "data.safetensors", out, 20), nprocs=3)
    ours, theirs = newest(tmp_path / "runs/bert")["model"], load_file(out)
    assert_same_tensors(dict(ours), {name: theirs[name] for name in ours})


def test_an_exported_folder_is_transformers_own(train, logits, lockstep, run, tmp_path):
    folder = tmp_path / "folder"
    spread(make_model(classifier_dropout=0.3)).save_pretrained(folder)
    (folder / "vocab.txt").write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *map(str, range(115))]))
    (folder / "tokenizer_config.json").write_text('{"do_lower_case": false}')
    _, saved = train(folder, train__max_steps=3, optim__lr=0.01)
    export = [lockstep, "export", tmp_path / "config.yaml", "--checkpoint", tmp_path / "runs/bert", "--output", "out"]
    run(*export, cwd=tmp_path, check=True)
    out = tmp_path / "out"
    assert sorted(path.name for path in out.iterdir()) == ["config.json", "model.safetensors", "tokenizer_config.json", "vocab.txt"]
    loaded, info = transformers.AutoModelForSequenceClassification.from_pretrained(out, output_loading_info=True)
    assert type(loaded).__name__ == "BertForSequenceClassification" and not any(info.values())
    assert loaded.config.id2label == dict(enumerate(LABELS)) and loaded.config.classifier_dropout == 0.3
    for name, tensor in loaded.state_dict().items():
        assert torch.equal(tensor, saved["model"][name]), name
    assert torch.equal(logits(out, texts(5)), logits_of(loaded, texts(5)))
    assert transformers.AutoTokenizer.from_pretrained(out).convert_tokens_to_ids("7") == 12
    again = run(*export, cwd=tmp_path)
    assert again.returncode == 2 and "the folder exists and is not empty" in again.stderr


def test_a_resumed_run_is_the_run_that_never_stopped(train, lockstep, run, tmp_path):
    """Two groups of parameters, the warm-up's place and dropout's draws are in the checkpoint."""
    folder = tmp_path / "folder"
    make_model().save_pretrained(folder)
    settings = dict(schedule__name="linear_warmup", schedule__warmup_steps=6, schedule__total_steps=20, optim__weight_decay=0.3)
    _, whole = train(folder, **settings)
    _, stopped = train(folder, run__name="parts", train__max_steps=7, **settings)
    assert stopped["iter_no"] == 7 and len(stopped["optimizer"]["param_groups"]) == 2
    run(lockstep, "train", tmp_path / "config.yaml", *sets(run__name="parts", **settings), "--resume", "auto",
        cwd=tmp_path, check=True, env={"OMP_NUM_THREADS": "1"})
    resumed = newest(tmp_path / "runs/parts")
    assert resumed["iter_no"] == 20
    for part in ("model", "optimizer"):
        assert_same_tensors(dict(resumed[part]), dict(whole[part]))
