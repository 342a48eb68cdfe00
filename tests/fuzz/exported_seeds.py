"""exported_seeds.py FOLDER: the seeds of the fuzzer `exported-run`, small models as torch.export.save writes them.

Without what nothing here reads: the sample inputs, and where a node stands in whose sources.
"""

import json
import pathlib
import sys
import warnings
import zipfile

import torch
from torch import nn

sys.path.append(str(pathlib.Path(__file__).parents[1] / "models/exported"))
from zoo import ZOO  # noqa: E402

TAKEN = ("autocast", "buffers", "cond", "einsum_norms", "lstm", "multi_io", "nonzero", "sdpa")


class Kitchen(nn.Module):
    """Has tensors of many shapes and dtypes, for calls that somebody makes up."""

    def __init__(self):
        super().__init__()
        self.conv, self.norm, self.drop = nn.Conv2d(2, 4, 3, padding=1), nn.BatchNorm2d(4), nn.Dropout(0.25)
        self.words, self.fc = nn.Embedding(8, 4), nn.Linear(4, 4)
        self.register_buffer("seen", torch.zeros((), dtype=torch.int64))

    def forward(self, x, words):
        self.seen += 1
        image = self.drop(torch.relu(self.norm(self.conv(x))))
        sequence = image.flatten(2).transpose(1, 2)
        square = sequence.transpose(1, 2) @ sequence
        flat = self.fc(sequence.mean(1)) + self.words(words).sum(1)
        row = flat.mean(0)
        others = (row.sum(), image.unsqueeze(2), flat > 0, flat.double(), flat.half(), (flat * 3).to(torch.uint8),
                  torch.complex(row, row * 2).abs(), torch.fft.fft(flat).abs(), flat.argsort(1), x[:, :1].to(torch.bfloat16))
        return flat + sum(other.float().sum() for other in others) * 0.01, square, sequence


def export(module, arguments, shapes, path):
    exported = torch.export.export(module.train(), arguments, dynamic_shapes=shapes, strict=False)
    torch.export.save(exported, path)
    with zipfile.ZipFile(path) as archive:
        records = {name: archive.read(name) for name in archive.namelist() if "/sample_inputs/" not in name}
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in records.items():
            archive.writestr(name, bare(content) if name.endswith("/model.json") else content)


def bare(content):
    def without(value):
        if isinstance(value, list):
            return [without(item) for item in value]
        if isinstance(value, dict):
            return {key: {} if key == "metadata" else without(item) for key, item in value.items()}
        return value
    return json.dumps(without(json.loads(content)), separators=(",", ":"))


def main(folder):
    warnings.filterwarnings("ignore")
    torch.manual_seed(0)
    generator, free = torch.Generator().manual_seed(0), {0: torch.export.Dim.AUTO}
    export(Kitchen(), (torch.randn(2, 2, 6, 6), torch.randint(8, (2, 5))), (free, free), pathlib.Path(folder) / "kitchen.pt2")
    for name in TAKEN:
        arguments = ZOO[name].batch(4, generator)
        export(ZOO[name].make(), arguments, ZOO[name].dynamic_shapes(arguments), pathlib.Path(folder) / f"{name}.pt2")


if __name__ == "__main__":
    main(sys.argv[1])
