"""Readers of other people's files meet files that no program wrote: they read or refuse, and do nothing else."""

import pytest

from conftest import SOURCE
from process_kit import LONG_PATIENCE

pytestmark = pytest.mark.about("base", "checkpoint", "cluster", "config", "data", "exported", "models", "report", "text")

PARSERS = ["pt", "safetensors", "inspect", "csv", "npy", "npz", "columns", "images", "idx", "rows", "jsonl", "png",
           "jpeg", "exported", "vocabulary", "tokenizer", "bert-config", "tokens", "config", "past-config", "site", "scheduler",
           "record", "metrics", "status"]


def fuzzed(run, build_dir, tmp_path, *words):
    result = run(SOURCE / "scripts/fuzz", *words, "--build", build_dir, env={"TMPDIR": str(tmp_path)}, timeout=LONG_PATIENCE)
    assert result.returncode == 0, result.output
    return result.stdout


def test_parsers_of_each_kind_read_or_refuse(run, build_dir, tmp_path):
    assert fuzzed(run, build_dir, tmp_path, "list").split() == PARSERS
    for parser in ("pt", "csv", "exported", "tokenizer", "config", "metrics"):  # --full has all of them
        assert f"{parser}: 50 inputs" in fuzzed(run, build_dir, tmp_path, parser, "--inputs", "50", "--seed", "1")
    assert not list(tmp_path.glob("lockstep-fuzz-*"))


@pytest.mark.full
@pytest.mark.parametrize("parser", PARSERS)
def test_a_parser_reads_or_refuses_for_a_minute(parser, run, build_dir, tmp_path):
    fuzzed(run, build_dir, tmp_path, parser, "60")
