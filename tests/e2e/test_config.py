"""The errors of a wrong config, and the frame of the program: what a person and a job see."""

import json
import os
import re

import pytest

from process_kit import shared_library

pytestmark = pytest.mark.about("config", "cli", "base")


def test_version_names_what_it_was_built_from(run, lockstep):
    text = run(lockstep, "--version", check=True).stdout
    for name in ("lockstep", "commit", "libtorch", "MPI", "CUDA", "NCCL", "compiler"):
        assert re.search(rf"^{name} +\S", text, re.M), text


def test_every_mistake_is_said_once_for_all_ranks(mpirun, lockstep, tmp_path):
    path = tmp_path / "c.yaml"
    path.write_text("train: {epoch: 3, mode: dpd}\noptim: {learning_rate: 0.1}\n")
    result = mpirun(3, lockstep, "train", path, quiet=True, cwd=tmp_path)
    assert result.returncode == 2 and result.stderr.count("error: 3 mistakes in the config") == 1, result.stderr
    for words in (f"1. unknown key train.epoch\n     --> {path}:1:9\n", "2. train.mode must be", "did you mean optim.lr?"):
        assert result.stderr.count(words) == 1, result.stderr
    assert not result.left_behind and not (tmp_path / "runs").exists()


SAYS_THAT_IT_RUNS = """
#include <stdio.h>
__attribute__((constructor)) static void run(void) { fprintf(stderr, "the library runs\\n"); }
"""


def test_no_library_of_another_user_is_run_to_read_a_config(run, lockstep, tmp_path):
    library = shared_library(tmp_path, "theirs.so", SAYS_THAT_IT_RUNS)
    (tmp_path / "c.yaml").write_text(f"task: {{name: mnist}}\noptim: {{name: {library}}}\n")
    own = run(lockstep, "config", tmp_path / "c.yaml")
    assert "the library runs" in own.stderr
    try:
        os.chown(library, 65534, 65534)
    except PermissionError:
        pytest.skip("only root gives files away")
    for name in (library, f"{library}:row"):
        theirs = run(lockstep, "config", tmp_path / "c.yaml", "--set", f"optim.name={name}")
        assert theirs.returncode == 2 and "the library runs" not in theirs.stderr
        assert "a library of another user (uid 65534)" in theirs.stderr and str(library) in theirs.stderr


@pytest.mark.full
def test_the_schema_agrees_with_the_program(run, lockstep, tmp_path):
    """What the schema accepts the program accepts, and the other way round."""
    jsonschema = pytest.importorskip("jsonschema", reason="the Python package jsonschema is not there")
    schema = json.loads(run(lockstep, "config", "--schema", check=True).stdout)
    jsonschema.Draft202012Validator.check_schema(schema)
    validator = jsonschema.Draft202012Validator(schema)
    cases = [
        ({}, True), ({"train": None}, True), ({"train": {"epochs": 0}}, False), ({"train": {"epochs": "3"}}, False),
        ({"train": {"epoch": 3}}, False), ({"trian": {}}, False), ({"optim": {"betas": [0.9, 0.99]}}, True),
        ({"optim": {"betas": [0.9, 1.0]}}, False), ({"optim": {"weight_decay": "default"}}, True), ({"ddp": {"bucket_cap_mb": 0.5}}, True),
        ({"launch": {"timeout": "1h30m"}}, True), ({"launch": {"timeout": "soon"}}, False), ({"data": {"shuffle": "yes"}}, False),
        ({"ddp": {"comm_hook": "powersgd", "options": {"random_seed": 1}}}, True), ({"task": {"features": "a"}}, False), ([], False),
    ]
    for document, good in cases:
        path = tmp_path / "case.yaml"
        path.write_text(json.dumps(document))  # JSON is YAML
        result = run(lockstep, "--log", "error", "config", path)
        assert (result.returncode == 0) == good, (document, result.stderr)
        assert validator.is_valid(document) == good, document
