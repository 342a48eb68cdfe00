"""Every way to train, a few steps of each on the GPU and on the CPU: the losses agree within a bound.

The sums of a GPU are in another order than a CPU's, so the bits differ; TF32 is off. Where a generator draws (dropout), the
draws differ too, and only a wide bound is left.
"""

import dataclasses
import json
import random
import struct
import zlib

import launch
import trained
from running import Wrong

STEPS = 12
SMALL = ("data.batch_size=64",)
WORDS = {"good": "bright calm clever fine good great kind".split(), "bad": "awful bad bitter cold cruel dull grim".split()}


@dataclasses.dataclass
class Mode:
    config: object            # of configs/, or a function that writes one into a folder
    sets: tuple = SMALL
    world: int = 1
    close: float = 1e-4       # of a loss
    steps: int = STEPS
    on_cpu: tuple = ()        # there in the place of what a CPU has not


def png(path, size, shade, draw):
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    rows = b"".join(b"\0" + bytes(min(255, shade + draw.randrange(60)) for _ in range(3 * size)) for _ in range(size))
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", size, size, 8, 2, 0, 0, 0)) +
                     chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))


def folder_of_images(folder):
    """A config of resnet18 on small images of two shades. From the second step on BatchNorm makes small differences large: Python's own
    resnet18 is as far apart on a GPU and a CPU."""
    draw = random.Random(1)
    for label, shade in (("dark", 40), ("light", 140)):
        place = folder / "images" / label
        place.mkdir(parents=True, exist_ok=True)
        for number in range(40):
            png(place / f"{number}.png", 36, shade, draw)
    return written(folder, "folder", f"""task: {{name: folder, size: [32, 32], augment: [crop, flip], eval_fraction: 0.2}}
data: {{root: {folder}/images, batch_size: 8, workers: 2}}
model: {{name: resnet18}}
optim: {{name: sgd, lr: 0.001}}
""")


def small_bert(folder):
    """A Hugging Face folder: weights by torch, and a vocabulary."""
    import torch
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "film", "was", *WORDS["good"], *WORDS["bad"]]
    sizes = {"vocab_size": len(words), "hidden_size": 48, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 80,
             "max_position_embeddings": 40, "type_vocab_size": 2, "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    torch.manual_seed(0)
    state = {}

    def linear(name, rows, columns):
        state[f"{name}.weight"], state[f"{name}.bias"] = 0.1 * torch.randn(rows, columns), 0.1 * torch.randn(rows)

    def norm(name):
        state[f"{name}.weight"], state[f"{name}.bias"] = 1 + 0.1 * torch.randn(48), 0.1 * torch.randn(48)
    for name, rows in (("word", len(words)), ("position", 40), ("token_type", 2)):
        state[f"bert.embeddings.{name}_embeddings.weight"] = 0.1 * torch.randn(rows, 48)
    norm("bert.embeddings.LayerNorm")
    for layer in (f"bert.encoder.layer.{i}" for i in range(3)):
        for name in ("self.query", "self.key", "self.value", "output.dense"):
            linear(f"{layer}.attention.{name}", 48, 48)
        norm(f"{layer}.attention.output.LayerNorm")
        linear(f"{layer}.intermediate.dense", 80, 48)
        linear(f"{layer}.output.dense", 48, 80)
        norm(f"{layer}.output.LayerNorm")
    linear("bert.pooler.dense", 48, 48)
    folder.mkdir(parents=True, exist_ok=True)
    torch.save(state, folder / "pytorch_model.bin")
    (folder / "config.json").write_text(json.dumps({"model_type": "bert", "hidden_act": "gelu", "layer_norm_eps": 1e-12} | sizes))
    (folder / "vocab.txt").write_text("\n".join(words) + "\n")
    (folder / "tokenizer_config.json").write_text('{"do_lower_case": true}')


def texts(folder):
    draw = random.Random(2)
    small_bert(folder / "bert")
    rows = [(" ".join(["the", "film", "was", *draw.choices(WORDS[label], k=draw.randint(1, 12))]), label)
            for label in ("good", "bad") * 100]
    (folder / "texts.csv").write_text("text,label\n" + "".join(f"{text},{label}\n" for text, label in rows))
    return written(folder, "text", f"""task: {{name: text, file: {folder}/texts.csv, text: [text], label: label, eval_fraction: 0.1}}
model: {{name: bert, path: {folder}/bert}}
data: {{batch_size: 16, bucket: 64}}
optim: {{name: adamw, lr: 0.0003, weight_decay: 0.01, no_decay: [bias, LayerNorm]}}
train: {{clip_norm: 1}}
""")


def torchscript(folder):
    import torch
    net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(784, 64), torch.nn.BatchNorm1d(64), torch.nn.ReLU(),
                              torch.nn.Linear(64, 10))
    torch.manual_seed(0)
    torch.jit.script(net).save(str(folder / "net.pt"))
    return written(folder, "torchscript", f"""task: {{name: mnist}}
data: {{root: {launch.ROOT}/data/mnist, batch_size: 64}}
model: {{name: torchscript, path: {folder}/net.pt}}
optim: {{name: sgd, lr: 0.01}}
""")


def written(folder, name, text):
    path = folder / f"{name}.yaml"
    path.write_text(f"run: {{name: {name}, seed: 0}}\n{text}")
    return path


FP32 = ("train.precision=fp32",)
PLAIN = ("train.graph=false",)
GRAPH = ("train.precision=fp32", *SMALL)
ONE = {
    "mnist": Mode("mnist"), "single": Mode("mnist", (*SMALL, "train.mode=single")),
    "data_parallel": Mode("mnist_dp"), "two_stage on one GPU": Mode("mnist_two_stage", (*SMALL, "model.devices=[0,0]")),
    "bf16": Mode("mnist", (*SMALL, "train.precision=bf16"), close=5e-3), "fp16": Mode("mnist", (*SMALL, "train.precision=fp16"),
                                                                                    close=5e-3, on_cpu=FP32),
    "channels_last": Mode("mnist", (*SMALL, "train.layout=channels_last")), "accumulate": Mode("mnist", (*SMALL, "train.accumulate=4")),
    "resident": Mode("mnist", (*SMALL, "data.resident=true")),
    "graph": Mode("mnist_gpu", GRAPH, close=1e-3, steps=30, on_cpu=PLAIN),
    "graph, adam": Mode("mnist_gpu", (*GRAPH, "optim.name=adam", "optim.momentum=0", "optim.lr=0.0001"), close=1e-3, steps=30,
                        on_cpu=PLAIN),
    "folder, resnet18": Mode(folder_of_images, (), close=1e-3, steps=1), "text, BERT": Mode(texts, ()),
    "text, BERT, bf16": Mode(texts, ("train.precision=bf16",), close=2e-2), "torchscript": Mode(torchscript, ()),
    "csv": Mode("csv", ()), "idx": Mode("idx"),
}
TWO = {
    "mnist": Mode("mnist", world=2), "find_unused": Mode("pima_unused", (), 2),
    "static_graph": Mode("mnist", (*SMALL, "ddp.static_graph=true"), 2),
    "gradient_as_bucket_view": Mode("mnist", (*SMALL, "ddp.gradient_as_bucket_view=true"), 2),
    "hook fp16": Mode("mnist", (*SMALL, "ddp.comm_hook=fp16"), 2, 1e-3), "hook bf16": Mode("mnist", (*SMALL, "ddp.comm_hook=bf16"), 2, 2e-3),
    "powersgd": Mode("mnist", (*SMALL, "ddp.comm_hook=powersgd"), 2, 1e-3),
    "sync_batchnorm": Mode(folder_of_images, ("ddp.sync_batchnorm=true",), 2, 1e-3, 1),
    "two_stage on one GPU": Mode("mnist_two_stage", (*SMALL, "model.devices=[0,0]"), 2),
    "pipeline": Mode("mnist_pipeline", world=2), "tensor": Mode("mnist_tensor", world=2), "tensor x data": Mode("mnist_tensor", world=4),
    "pipeline x data": Mode("mnist_pipeline", world=4), "sharded": Mode("mnist_sharded", (*SMALL, "optim.lr=0.0001"), 2),
    "sharded, fp16": Mode("mnist_sharded", (*SMALL, "optim.lr=0.0001", "train.precision=fp16"), 2, 5e-3, on_cpu=FP32),
    "fp16": Mode("mnist", (*SMALL, "train.precision=fp16"), 2, 5e-3, on_cpu=FP32),
    "clip": Mode("mnist", (*SMALL, "train.clip_norm=0.5"), 2), "accumulate": Mode("mnist", (*SMALL, "train.accumulate=4"), 2),
    "graph": Mode("mnist_gpu", GRAPH, 2, 1e-3, 30, PLAIN), "text, BERT": Mode(texts, (), 2),
    "cartpole": Mode("cartpole", ("task.options.steps=16", *SMALL), 2, 1e-3),
    "bert_layer": Mode("mnist_bert_layer", (*SMALL, "model.options.dropout=0"), 2),
    "bert_layer, dropout": Mode("mnist_bert_layer", SMALL, 2, 0.05),
}


def config_of(mode, folder):
    if isinstance(mode.config, str):
        return launch.ROOT / f"configs/{mode.config}.yaml"
    folder.mkdir(exist_ok=True)
    return mode.config(folder)


def losses(part, mode, config, name, kind, sets=()):
    told = (*mode.sets, *sets, f"launch.device={kind}", "train.tf32=none")
    return trained.ours(part, name, *told, config=config, steps=mode.steps, world=mode.world, saves=False).losses


def compare(part, modes, found):
    wrong = []
    for name, mode in modes.items():
        try:
            config = config_of(mode, part.folder / "configs")
            plain = "".join(letter if letter.isalnum() else "_" for letter in name)
            found[name] = trained.loss_words(losses(part, mode, config, plain, "cuda"),
                                             losses(part, mode, config, f"{plain}-cpu", "cpu", mode.on_cpu), mode.close)
        except (Wrong, launch.Failed) as error:
            wrong.append(name)
            found[name] = f"WRONG: {error}"
    if wrong:
        raise Wrong(f"wrong: {', '.join(wrong)}")


def one(part, found):
    compare(part, ONE, found)


def two(part, found):
    compare(part, TWO, found)
