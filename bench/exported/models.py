"""models.py FOLDER: SimpleCNN, an MLP and a small BERT, exported and as TorchScript, for bench_exported."""

import pathlib
import sys
import warnings

import torch
import transformers

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tests/models"))
from models_peer import PimaNet, SimpleCNN  # noqa: E402

BERT = transformers.BertConfig(vocab_size=1000, hidden_size=128, num_hidden_layers=2, num_attention_heads=2,
                               intermediate_size=512, max_position_embeddings=64, num_labels=2)


class Bert(transformers.BertForSequenceClassification):
    """Over [n, 3, tokens], as a task of texts gives them."""

    def forward(self, x):
        return super().forward(input_ids=x[:, 0], token_type_ids=x[:, 1], attention_mask=x[:, 2], return_dict=False)[0]


MODELS = {
    "cnn": (SimpleCNN, lambda: torch.randn(4, 1, 28, 28), {0: torch.export.Dim.AUTO}),
    "mlp": (PimaNet, lambda: torch.randn(4, 8), {0: torch.export.Dim.AUTO}),
    "bert": (lambda: Bert(BERT), lambda: torch.ones(4, 3, 32, dtype=torch.int64), {0: torch.export.Dim.AUTO}),
}


def main(folder):
    warnings.filterwarnings("ignore")
    for name, (make, inputs, sizes) in MODELS.items():
        torch.manual_seed(0)
        model, x = make().train(), inputs()
        torch.export.save(torch.export.export(model, (x,), dynamic_shapes=(sizes,)), folder / f"{name}.pt2")
        script = torch.jit.trace(model, x, check_trace=False, strict=False) if name == "bert" else torch.jit.script(model)
        script.save(str(folder / f"{name}.pt"))
    BERT.save_pretrained(folder)


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
