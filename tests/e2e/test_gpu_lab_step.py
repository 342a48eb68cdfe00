"""A step on pretended GPUs (tests/gpulab): whose time the phases are, how batches come, what is computed again, and who waits."""

import json
import time

import pytest

pytest.importorskip("safetensors")
pytest.importorskip("gpu_lab_kit", reason="the laboratory is not here")

import torch  # noqa: E402
from gpu_lab_kit import gpu_lab  # noqa: E402, F401
from safetensors.torch import save_file  # noqa: E402
from train_kit import MNIST, assert_same_tensors, metrics, newest, sets, write_config  # noqa: E402

pytestmark = pytest.mark.about("cuda", "step", "observe", "recompute")

BERT = """
run: {{name: bert, seed: 5}}
task: {{name: {task}, options: {{file: {data}}}}}
data: {{batch_size: 4, shuffle: false, workers: 1}}
model: {{name: bert, options: {{vocab_size: 60, hidden_size: 16, num_hidden_layers: 2, num_attention_heads: 2,
                               intermediate_size: 32, max_position_embeddings: 16, hidden_dropout_prob: 0.2}}}}
optim: {{name: adamw, lr: 0.001}}
launch: {{device: cuda}}
train: {{epochs: 1, log_every: 0, eval_every: 0, tf32: none}}
"""


@pytest.fixture
def bert(build_dir, tmp_path):
    """A config of texts of which some batches are padded."""
    torch.manual_seed(1)
    input = torch.stack([torch.randint(5, 60, (40, 12)), torch.zeros(40, 12, dtype=torch.long),
                         torch.ones(40, 12, dtype=torch.long)], dim=1)
    for row in range(0, 40, 8):
        input[row, :, 7:] = 0
    save_file({"input": input, "target": torch.randint(0, 3, (40,))}, tmp_path / "data.safetensors")
    return write_config(tmp_path, BERT.format(task=build_dir / "lib/tokens_task.so", data=tmp_path / "data.safetensors"))


@pytest.fixture
def train(lockstep, tmp_path):
    """train(lab, config, "name", world, env={}, KEY=value): the run's folder."""
    def start(lab, config, name, world=1, env=None, **settings):
        lab.run(world, lockstep, "train", config, *sets(run__name=name, **settings), env=env)
        return tmp_path / "runs" / name
    return start


@pytest.mark.full
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_bert_computes_again_on_a_gpu_to_the_same_bits(precision, gpu_lab, bert, train):  # noqa: F811
    lab = gpu_lab(gpus=2)
    plain, again = (newest(train(lab, bert, f"run-{on}", 2, model__checkpointing=on, train__precision=precision))
                    for on in (False, True))
    assert_same_tensors(plain["model"], again["model"])
    assert_same_tensors(plain["optimizer"]["state"], again["optimizer"]["state"])


@pytest.mark.full
def test_batches_travel_beside_the_step_and_are_waited_for(gpu_lab, train, tmp_path):  # noqa: F811
    """With workers the next one is sent ahead; the laboratory shows what is read before it is there."""
    lab = gpu_lab()
    config = write_config(tmp_path, MNIST)
    more = dict(launch__device="cuda", train__max_steps=6, train__log_every=1, data__batch_size=32, train__tf32="none")
    ways = [train(lab, config, f"run-{workers}-{delay}", data__workers=workers, env=lab.env(delay_ms=delay), **more)
            for workers, delay in ((0, 0), (2, 2))]
    one, other = ([line["loss"] for line in metrics(folder) if line["event"] == "step"] for folder in ways)
    assert len(one) == 6 and one == other


def test_phases_of_a_gpu_add_up_to_the_training(gpu_lab, train, tmp_path):  # noqa: F811
    """Read from its events, late; ranges for Nsight stand beside them."""
    lab = gpu_lab(gpus=2)
    begin = time.monotonic()
    folder = train(lab, write_config(tmp_path, MNIST), "run", 2, env=lab.env(delay_ms=2), launch__device="cuda",
                   train__max_steps=10, train__log_every=0, data__batch_size=32, train__nvtx=True, train__tf32="none")
    passed = time.monotonic() - begin
    phases = json.loads((folder / "report.json").read_text())["attempts"][-1]["phases"]
    for rank in phases["ranks"]:
        seconds = dict(zip(phases["names"], rank))
        assert min(seconds[name] for name in ("forward", "backward", "waiting for communication", "optimizer")) > 0, seconds
        assert min(rank) >= 0 and sum(rank) < passed, seconds


@pytest.mark.full
def test_a_trace_shows_the_gpus_phases(gpu_lab, train, tmp_path):  # noqa: F811
    lab = gpu_lab(gpus=2)
    folder = train(lab, write_config(tmp_path, MNIST), "run", 2, env=lab.env(delay_ms=2), launch__device="cuda",
                   train__max_steps=8, train__trace=4, data__batch_size=32, train__tf32="none")
    spans = [event for event in json.loads((folder / "trace.json").read_text())["traceEvents"] if event.get("ph") == "X"]
    for name in ("forward", "backward", "optimizer"):
        own = [span for span in spans if span["name"] == name]
        assert {span["args"]["step"] for span in own} == {5, 6, 7, 8} and all(span["dur"] > 1000 for span in own), name
    began = {}
    for span in sorted(spans, key=lambda span: span["ts"]):
        began.setdefault((span["pid"], span["args"].get("step"), span["name"]), span["ts"])
    for rank in {pid for pid, _, _ in began}:
        for step in (5, 6, 7, 8):
            assert began[rank, step, "data"] < began[rank, step, "forward"] < began[rank, step, "optimizer"], (rank, step)
