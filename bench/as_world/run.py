"""run.py [ROUNDS]: measures the cost of train.as_world: N ranks on P processes against plain DDP on P ranks with the same global batch.

Checks that both train the same model, bit for bit. Prints median samples/s, their ratio, and the total memory (PSS) of all ranks.
"""

import hashlib
import json
import pathlib
import statistics
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / folder) for folder in ("bench/comparison", "tests/e2e")]
import launch  # noqa: E402
from text_kit import reviews, write_csv, write_vocabulary  # noqa: E402

PROGRAM = ROOT / "build/release/bin/lockstep"
BERT = """
run: {{name: bert, seed: 1}}
task: {{name: text, file: {folder}/reviews.csv, text: [text], vocabulary: {folder}/words, max_length: 32}}
data: {{batch_size: 8, workers: 0}}
model: {{name: bert, options: {{vocab_size: 200, hidden_size: 128, num_hidden_layers: 2, num_attention_heads: 2,
         intermediate_size: 512, max_position_embeddings: 64}}}}
optim: {{name: adamw, lr: 0.001}}
train: {{epochs: 1000}}
"""
# a rank's batch, the steps
MODELS = {"CNN": (64, 40), "Pima MLP": (16, 3000), "BERT-small": (8, 40)}
PAIRS = ((8, 1), (8, 2), (4, 2), (2, 2))  # N on P


def config_of(model, folder):
    if model == "BERT-small":
        (folder / "bert.yaml").write_text(BERT.format(folder=folder))
        return folder / "bert.yaml"
    return ROOT / "configs" / {"CNN": "mnist.yaml", "Pima MLP": "pima.yaml"}[model]


def settings(model, batch, **more):
    told = {"data.batch_size": batch, "data.workers": 0, "train.max_steps": MODELS[model][1], "train.epochs": 100000, "train.eval_every": 0,
            "train.log_every": 0, "checkpoint.every_epochs": 0, "train.threads": 1, "run.name": "run"} | more
    return [word for key, value in told.items() for word in ("--set", f"{key}={value}")]


def digest(folder):
    file = sorted((folder / "runs/run/checkpoints").glob("step-*.pt"))[-1]
    listed = launch.run([([PROGRAM, "inspect", file, "--json"], launch.environment())], folder, 60).out
    return hashlib.sha256(json.dumps([row for row in json.loads(listed)["entries"] if row["name"].startswith("model.")]).encode()).hexdigest()


def train(model, config, processes, words):
    """(samples/s, MB of all ranks, a digest of the model)"""
    most = [0.0]

    def watch(started):
        pids = [pid for process in started for pid in launch.descendants(process.pid)]
        most[0] = max(most[0], launch.proportional_mb(pids))
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        ran = launch.run([(["mpirun", "--bind-to", "none", "-n", processes, PROGRAM, "train", config, *words], launch.environment())],
                         folder, 600, watch)
        told = next(line for line in (ran.out + ran.err).splitlines() if line.endswith("samples/s"))
        return float(told.split()[2]), most[0], digest(folder)


def main():
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        write_vocabulary(folder / "words")
        write_csv(folder / "reviews.csv", reviews(2000))
        print(f"{'':12}{'N on P':>8}{'plain P /s':>12}{'as_world /s':>13}{'ratio':>7}{'plain MB':>10}{'as_world MB':>13}")
        for model, (batch, _) in MODELS.items():
            config = config_of(model, folder)
            whole = {n: train(model, config, n, settings(model, batch))[2] for n in {n for n, _ in PAIRS}}
            for n, p in PAIRS:
                runs = [(train(model, config, p, settings(model, batch * n // p)),
                         train(model, config, p, settings(model, batch, **{"train.as_world": n}))) for _ in range(rounds)]
                if any(ours[2] != whole[n] for _, ours in runs):
                    sys.exit(f"error: {model}: {n} ranks on {p} processes trained a different model than {n} processes\n"
                             f"  hint: compare the two runs: lockstep train {config} --set train.as_world={n}")
                plain, ours = (statistics.median(pair[i][0] for pair in runs) for i in (0, 1))
                print(f"{model:12}{f'{n} on {p}':>8}{plain:12.0f}{ours:13.0f}{ours / plain:7.2f}"
                      f"{max(pair[0][1] for pair in runs):10.0f}{max(pair[1][1] for pair in runs):13.0f}", flush=True)


if __name__ == "__main__":
    main()
