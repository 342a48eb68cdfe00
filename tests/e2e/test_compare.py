"""bench/compare: what it promises of its table, its files and its exit status, with runs of few steps."""

import json
import re
import sys

import pytest
from conftest import SOURCE, run_process
from process_kit import LONG_PATIENCE

pytestmark = pytest.mark.about("bench")

SECONDS = LONG_PATIENCE // 2  # a comparison begins nothing that would end later


@pytest.fixture(scope="session")
def compare(python, build_dir, lockstep):
    """compare(ARG...) -> Result; few steps, one round."""
    def run(*words):
        return run_process([sys.executable, SOURCE / "bench/compare", "--build", build_dir, *words], timeout=LONG_PATIENCE)
    return run


def few_steps(compare, out, *words):
    return compare("--only", "P3,P10", "--steps", 4, "--rounds", 1, "--seconds", SECONDS, "--out", out, *words)


def record(folder):
    file, = folder.glob("*.json")
    return json.loads(file.read_text())


@pytest.mark.full
def test_a_right_result_has_its_table_its_record_and_its_page(compare, tmp_path):
    out = tmp_path / "out"
    result = few_steps(compare, out)
    assert result.returncode == 0, result.output
    assert "right: pima and pima_stock: 4 losses, bit for bit" in result.stdout
    assert "right: pima_mpi and pima_stock: 4 losses, bit for bit" in result.stdout
    assert "WRONG" not in result.stdout and not result.left_behind
    row = next(row for row in record(out)["rows"] if row["ours"] == "pima_mpi.speed")
    assert row["ratio"] == row["our_figures"]["median"] / row["peer_figures"]["median"]
    for who in ("our_figures", "peer_figures"):
        assert 0 < row[who]["min"] <= row[who]["median"] <= row[who]["max"]
    for name in ("cpu", "load", "peers", "lockstep", "mpi"):
        assert re.search(rf"^{name} +\S", result.stdout, re.MULTILINE), name
    assert re.search(r"^P3 +Pima MLP, mpi backend +pima_stock .*≥ 12 +≥ 20 ", result.stdout, re.MULTILINE)
    gpu = next(row for row in record(out)["rows"] if row["target"] == "P10")
    assert gpu["verdict"].startswith("does not apply: ") and "ratio" not in gpu
    page = next(out.glob("*.html")).read_text()
    data = json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', page)[1])
    assert [section["heading"] for section in data["sections"]][:2] == ["Targets", "Speed"]
    assert "default-src 'none'" in page and not re.search(r'<link|src=|url\(', page)
