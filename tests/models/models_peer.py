"""SimpleCNN, PimaNet, an MLP and a BERT layer in Python, seeded: parameters, then the output for a fixed input, as raw float32.

models_peer.py bits            to standard output
models_peer.py script FOLDER   TorchScript files of a net with BatchNorm and dropout, and of ones that cannot be trained
"""
import math
import pathlib
import sys

import torch
from torch import nn

sys.path.append(str(pathlib.Path(__file__).resolve().parents[2] / "bench/comparison/peers"))
from models import PimaNet, SimpleCNN  # noqa: E402


class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 4), nn.ReLU(), nn.Linear(4, 3))

    def forward(self, x):
        return self.layers(x.flatten(1))


class BertLayerNet(nn.Module):
    """A row of an image is a token; one BERT layer; the mean of the tokens is classified."""

    def __init__(self, rows=6, numbers=5, classes=3, width=8, heads=2, intermediate=16):
        super().__init__()
        self.embed = nn.Linear(numbers, width)
        self.position = nn.Embedding(rows, width)
        query, key, value, out = (nn.Linear(width, width) for _ in range(4))
        parts = nn.ModuleDict  # named as Hugging Face's BERT nests them
        attention = parts({"self": parts({"query": query, "key": key, "value": value}),
                           "output": parts({"dense": out, "LayerNorm": nn.LayerNorm(width, eps=1e-12)})})
        wide, narrow = nn.Linear(width, intermediate), nn.Linear(intermediate, width)
        self.layer = parts({"attention": attention, "intermediate": parts({"dense": wide}),
                            "output": parts({"dense": narrow, "LayerNorm": nn.LayerNorm(width, eps=1e-12)})})
        self.classifier = nn.Linear(width, classes)
        self.heads = heads

    def attend(self, x):
        own, output = self.layer["attention"]["self"], self.layer["attention"]["output"]
        query, key, value = (own[name](x).view(*x.shape[:2], self.heads, -1).transpose(1, 2)
                             for name in ("query", "key", "value"))
        scores = query @ key.transpose(-1, -2) / math.sqrt(query.shape[-1])
        seen = (scores.softmax(-1) @ value).transpose(1, 2).flatten(2)
        return output["LayerNorm"](output["dense"](seen) + x)

    def forward(self, images):
        rows = images.transpose(1, 2).flatten(2)
        x = self.attend(self.embed(rows) + self.position(torch.arange(rows.shape[1])))
        wide = nn.functional.gelu(self.layer["intermediate"]["dense"](x))
        output = self.layer["output"]
        return self.classifier(output["LayerNorm"](output["dense"](wide) + x).mean(1))


class Scripted(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Dropout(0.5))
        self.head = nn.Linear(6, 3)

    def forward(self, x):
        return self.head(self.body(x))


class Pair(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 3)

    def forward(self, x):
        return self.layer(x), x


def emit(model, x):
    for name, tensor in model.named_parameters():
        print(name, file=sys.stderr)
        sys.stdout.buffer.write(tensor.detach().numpy().tobytes())
    sys.stdout.buffer.write(model(x).detach().numpy().tobytes())


if __name__ == "__main__":
    if sys.argv[1] == "bits":
        torch.set_num_threads(1)
        for make, shape in ((SimpleCNN, (5, 1, 28, 28)), (PimaNet, (5, 8)), (Mlp, (5, 2, 3)), (BertLayerNet, (5, 1, 6, 5))):
            torch.manual_seed(7)
            emit(make(), torch.randn(shape))
    else:
        torch.manual_seed(3)
        folder = sys.argv[2]
        torch.jit.script(Scripted()).save(folder + "/model.pt")
        torch.jit.script(Pair()).save(folder + "/pair.pt")
        torch.jit.freeze(torch.jit.script(Scripted()).eval()).save(folder + "/frozen.pt")
        torch.save(Scripted().state_dict(), folder + "/weights.pt")
