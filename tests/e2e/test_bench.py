"""lockstep bench: measured, checked and drawn, on whatever this machine is."""

import json
import os
import re
import shutil

import pytest
from conftest import SOURCE
from train_kit import DATA

pytestmark = pytest.mark.about("bench", "report")

WAYS = ["gloo", "shared", "shared_in_place", "MPI_Allreduce", "mpi", "mpi_shared", "reduce_broadcast", "all_to_all", "ring", "recursive_doubling",
        "halving_doubling", "tree", "two_level"]


@pytest.fixture
def bench(lockstep, mpirun):
    return lambda world, *args, **how: mpirun(world, lockstep, "bench", *args, **how)


def rows(text):
    """{name: [numbers]} of the lines that are a name and numbers."""
    found = re.finditer(r"^(\S[^\d|\n]*?)(?: \(model\))?((?:\s+[\d.]+|\s+-)+)$", text, re.MULTILINE)
    return {match[1].strip(): match[2].split() for match in found}


def test_every_way_is_measured_beside_its_model(bench, run, tmp_path):
    page = tmp_path / "page.html"
    result = bench(3, "allreduce", "--sizes", "4,4K,256K", "--rounds", 2, "--out", page, check=True)
    lines = result.stdout.splitlines()
    for way in WAYS:
        assert any(line.startswith(way + " ") for line in lines), f"{way}:\n{result.stdout}"
        assert any(line.startswith(way + " (model)") for line in lines) == (way not in WAYS[:6])
    assert "all sums were correct" in result.stdout and "3 ranks on 1 node" in result.stdout
    assert "fastest algorithm, measured: " in result.stdout and "fastest algorithm, by the model: " in result.stdout
    assert "nccl" in result.stdout, "measured, or a line that says why not"
    many = os.cpu_count() or 1
    assert many >= 3 or "more ranks than cores" in result.stdout, result.stdout
    html = page.read_text()
    assert "2 (P-1) alpha" in html and "times the fastest" in html
    curves = json.loads(re.findall(r'"curves":(\[.*?\}\])', html)[0])
    assert len(curves) == len(WAYS) and sum("model" in curve for curve in curves) == 7
    text = run("node", SOURCE / "tests/e2e/page_text.js", page).stdout if shutil.which("node") else ""
    assert not text or "All-reduce: time over size, the 5 fastest at 256 KiB" in text and text.count("the others") == len(WAYS), text
    assert "times the fastest" in result.stdout


def test_overlap_hides_what_it_says(bench, tmp_path):
    page = tmp_path / "overlap.html"
    result = bench(2, "overlap", DATA.parent / "configs/pima.yaml", "--set", f"data.root={DATA}/pima", "--steps", 3,
                   "--latency", "3ms", "--bandwidth", "0", "--out", page, check=True)
    assert "the same losses, bit for bit" in result.stdout
    slow = rows(result.stdout.partition("simulated slow network: 3 ms per message")[2])
    for manner in ("after backward", "DDP's buckets", "per parameter", "one bucket"):
        assert float(slow[manner][1]) >= 6, f"two messages of 3 ms in {manner}:\n{result.stdout}"
    assert float(slow["after backward"][3]) < 1, f"nothing is left to hide behind:\n{result.stdout}"
    assert float(slow["per parameter"][1]) > 2 * float(slow["one bucket"][1]), "six parameters, six exchanges"
    assert "exposed exchange" in page.read_text()


@pytest.mark.parametrize("world, args, words", [
    (2, ["allreduce", "--backend", "nccl"], "which nccl cannot send"),
    (2, ["overlap", "configs/pima.yaml", "--set", "train.accumulate=2"], "the bench does not support this key"),
    (1, ["overlap", "configs/pima.yaml"], "one rank has nothing to exchange"),
])
def test_bad_input_is_said_once_for_all(bench, source_dir, world, args, words):
    result = bench(world, *args, cwd=source_dir)
    assert result.returncode == 2, result.output
    assert result.output.count(words) == 1, result.output
