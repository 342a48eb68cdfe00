"""Every way to train on pretended GPUs (tests/gpulab), against the same on the CPU: the table of the kit for real ones, and more.

What an operator gives appears only when its stream gets there, so that a wait that is missing shows in the numbers.
"""

import pytest
from gpu_lab_kit import gpu_lab  # noqa: F401

import launch
import modes
import running
import surroundings
from modes import SMALL, Mode

pytestmark = pytest.mark.about("cuda", "loop", "parallel")


def exported(folder):
    """A model whose device is baked into its graph."""
    import torch

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner, self.norm, self.last = torch.nn.Linear(784, 64), torch.nn.BatchNorm1d(64), torch.nn.Linear(64, 10)

        def forward(self, x):
            weights = torch.linspace(0.5, 1.5, 64, device=x.device)
            return self.last(torch.relu(self.norm(self.inner(x.flatten(1)))) * weights)
    torch.manual_seed(0)
    program = torch.export.export(Net(), (torch.randn(4, 1, 28, 28),), dynamic_shapes=({0: torch.export.Dim("batch")},))
    torch.export.save(program, folder / "net.pt2")
    return modes.written(folder, "exported", f"""task: {{name: mnist}}
data: {{root: {launch.ROOT}/data/mnist, batch_size: 64}}
model: {{name: exported, path: {folder}/net.pt2}}
optim: {{name: sgd, lr: 0.01}}
""")


MORE = {
    "exported, by two": Mode(exported, (), 2),
    "three ranks": Mode("mnist", world=3),
    "data_parallel over 2": Mode("mnist_dp", (*SMALL, "data_parallel.devices=2")),
    "two_stage on two GPUs each": Mode("mnist_two_stage", (*SMALL, "model.devices=[0,1]"), 2),
}
# The kit's data_parallel takes every GPU, and two devices on the CPU: a batch in four parts and in two has not always the same bits
MODES = {f"{name}, kit": mode for name, mode in modes.ONE.items() if name != "data_parallel"} | {f"{name}, kit of two": mode for name, mode in modes.TWO.items()} | MORE
# In the default tier
QUICK = {"mnist, kit of two"}
# A real GPU has the whole table of the kit; here are those that differ in what is done on one
HERE = {*QUICK, "mnist, kit", "graph, kit of two", "bf16, kit", "fp16, kit", "accumulate, kit", "resident, kit", "graph, adam, kit", "text, BERT, kit", "torchscript, kit",
        "find_unused, kit of two", "hook fp16, kit of two", "powersgd, kit of two", "sync_batchnorm, kit of two", "pipeline x data, kit of two",
        "tensor x data, kit of two", "sharded, fp16, kit of two", "clip, kit of two", "cartpole, kit of two", *MORE}
# Not the same bits, but close, and why
CLOSE = {
    "fp16": "autocast rounds other operators on a CPU than on a GPU", "bf16": "the same",
    "graph": "its optimizer is libtorch's fused one, with the rate as a tensor",
    "BERT": "attention is computed step by step there, and by one kernel on the CPU",
    "ranks": "NCCL's order of summing is not gloo's beyond two", "x data": "the same", "sync_batchnorm": "written by its formula",
}


@pytest.fixture
def part(gpu_lab, lockstep, python, tmp_path, monkeypatch):  # noqa: F811
    """What a part of the kit has to run with, on four pretended GPUs."""
    for name, value in gpu_lab(gpus=4).env().items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(launch, "FOREIGN", tuple(name for name in launch.FOREIGN if name != "LD_PRELOAD"))
    here = surroundings.Here("cuda", "", "", (2, 30), ["pretended"] * 4, [], program=lockstep)
    with open(tmp_path / "log.txt", "wb+") as log:
        yield running.Part(here, tmp_path, log, 300)


@pytest.mark.parametrize("name", [pytest.param(name, marks=[] if name in QUICK else [pytest.mark.full]) for name in MODES if name in HERE])
def test_it_trains_as_on_the_cpu(name, part):
    found, mode = {}, MODES[name]
    modes.compare(part, {"it": mode}, found)
    if not any(word in name for word in CLOSE) or "hook" in name:
        assert found["it"] == f"the same bits at {mode.steps} steps"
