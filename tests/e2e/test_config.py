"""`lockstep config`, the errors of a wrong config, and the frame of the program: what a person and a job see."""

import json
import os
import re
import subprocess

import pytest

from process_kit import shared_library
from train_kit import ANY_CPU, PIMA, write_config

pytestmark = pytest.mark.about("config", "cli", "base")

CONFIG = """\
run: {name: test, dir: "${LOCKSTEP_TEST_RUNS:-runs}"}
optim: {name: adamw, lr: 1.0e-3}
train:
  epochs: 3
"""


@pytest.fixture
def config(tmp_path):
    path = tmp_path / "c.yaml"
    path.write_text(CONFIG)
    return path


def values(text):
    """section.key -> (value, origin) of what `lockstep config` prints."""
    found, section = {}, ""
    for line in text.splitlines():
        if not line.startswith(" "):
            section = line.rstrip(":")
            continue
        name, rest = line.strip().split(": ", 1)
        value, origin = re.fullmatch(r"(.*?)\s+# (.*)", rest).groups()
        found[f"{section}.{name}"] = (value, origin)
    return found


def test_config_prints_every_key_with_its_origin(run, lockstep, config):
    result = run(lockstep, "config", config, "--set", "train.epochs=4", check=True)
    found = values(result.stdout)
    assert found["train.epochs"] == ("4", "--set")
    assert found["optim.lr"] == ("0.001", f"{config}:2:22")
    assert found["optim.weight_decay"] == ("0.01", "default")
    assert found["run.dir"] == ("runs", f"{config}:1:19")
    assert found["ddp.bucket_cap_mb"] == ("default", "default")


def test_what_config_prints_is_a_config_again(run, lockstep, config, tmp_path):
    first = run(lockstep, "config", config, env={"LOCKSTEP_TEST_RUNS": "/scratch/$me"}, check=True).stdout
    (tmp_path / "again.yaml").write_text(first)
    second = run(lockstep, "config", tmp_path / "again.yaml", check=True).stdout
    assert {k: v for k, (v, _) in values(first).items()} == {k: v for k, (v, _) in values(second).items()}
    assert values(second)["run.dir"][0] == '"/scratch/$$me"'


def test_configs_are_found_from_any_folder(run, lockstep, tmp_path):
    (tmp_path / "home/configs").mkdir(parents=True)
    (tmp_path / "home/configs/only_there.yaml").write_text("train: {epochs: 7}\n")
    (tmp_path / "work").mkdir()
    result = run(lockstep, "config", "configs/only_there.yaml", cwd=tmp_path / "work",
                 env={"LOCKSTEP_HOME": tmp_path / "home"}, check=True)
    assert values(result.stdout)["train.epochs"][0] == "7"


def test_a_home_that_is_not_there_is_said(run, lockstep, tmp_path):
    result = run(lockstep, "config", "configs/mnist.yaml", cwd=tmp_path, env={"LOCKSTEP_HOME": tmp_path / "gone"})
    assert result.returncode == 2
    assert "LOCKSTEP_HOME is no folder" in result.stderr and str(tmp_path / "gone") in result.stderr


def test_an_error_says_what_where_and_what_to_do_and_leaves_with_2(run, lockstep, tmp_path):
    path = tmp_path / "c.yaml"
    path.write_text("train:\n  epoch: 3\n")
    result = run(lockstep, "config", path)
    assert result.returncode == 2
    assert result.stdout == ""
    assert result.stderr.splitlines() == [
        "error: unknown key train.epoch",
        f"  where: {path}:2:3",
        "  to do: did you mean train.epochs? every key: docs/config.md, or lockstep config",
    ]


@pytest.mark.parametrize("kind", ["folder", "pipe", "device", "gigabyte", "missing", "binary"])
def test_a_file_that_is_no_config_is_refused_at_once(run, lockstep, tmp_path, kind):
    path = tmp_path / "c.yaml"
    if kind == "folder":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "device":
        path.symlink_to("/dev/zero")
    elif kind == "gigabyte":
        with open(path, "wb") as file:
            file.truncate(10**9)
    elif kind == "binary":
        path.write_bytes(bytes(range(256)) * 100)
    result = run(lockstep, "config", path)
    assert result.returncode == 2
    assert len(result.stderr) < 1000
    assert str(path) in result.stderr


@pytest.mark.parametrize("args", [["nonsense"], ["config", "nowhere.yaml"], ["whoami", "--no-such-option"]])
def test_under_mpirun_an_error_is_said_once(mpirun, lockstep, args):
    result = mpirun(4, lockstep, *args, quiet=True)
    assert result.returncode == 2
    assert result.stderr.count("error:") == 1, result.stderr
    assert not result.left_behind


@pytest.mark.parametrize("text, said", [("train: {epoch: 3}\n", "unknown key train.epoch"),
                                        ("train: [", "not valid YAML")])
def test_a_wrong_config_ends_every_rank_of_a_job_once(mpirun, lockstep, tmp_path, text, said):
    path = tmp_path / "c.yaml"
    path.write_text(text)
    result = mpirun(4, lockstep, "train", path, quiet=True, cwd=tmp_path)
    assert result.returncode == 2
    assert result.stderr.count("error:") == 1, result.stderr
    assert said in result.stderr
    assert f"{path}:1:" in result.stderr
    assert not result.left_behind
    assert not (tmp_path / "runs").exists()


def test_only_rank_zero_reads_the_config(mpirun, lockstep, tmp_path):
    """Each rank has a working directory of its own, and the file lies in rank 0's alone."""
    script = tmp_path / "rank.sh"
    script.write_text('mkdir -p "$1/$OMPI_COMM_WORLD_RANK$PMI_RANK"; cd "$1/$OMPI_COMM_WORLD_RANK$PMI_RANK"; shift; exec "$@"\n')
    (tmp_path / "0").mkdir()
    (tmp_path / "0/mine.yaml").write_text("train: {epochs: none}\n")
    result = mpirun(2, "bash", script, tmp_path, lockstep, "train", "mine.yaml", quiet=True)
    assert result.returncode == 2
    assert "mine.yaml:1:17" in result.stderr, result.stderr
    assert "cannot be read" not in result.stderr


def test_trace_is_asked_for(run, lockstep):
    assert "#0" not in run(lockstep, "config", "--set", "x=y").stderr
    traced = run(lockstep, "config", "--set", "x=y", env={"LOCKSTEP_TRACE": "1"}).stderr
    assert re.search(r"#\d+ lockstep::config::load_settings\(", traced), traced


def test_help_fits_a_screen_and_names_each_command(run, lockstep):
    text = run(lockstep, "--help", check=True).stdout
    lines = text.splitlines()
    assert len(lines) <= 40
    assert max(map(len, lines)) <= 110
    assert "examples:" in text
    commands = re.findall(r"^  (\w+) {2,}\S", text.split("commands:")[1].split("options:")[0], re.M)
    assert "config" in commands
    for command in commands:
        page = run(lockstep, command, "--help", check=True).stdout
        assert page.startswith(f"lockstep {command}: "), page
        assert len(page.splitlines()) <= 40
        assert "examples:" in page


def test_version_names_what_it_was_built_from(run, lockstep):
    text = run(lockstep, "--version", check=True).stdout
    for name in ("lockstep", "commit", "libtorch", "MPI", "CUDA", "NCCL", "compiler"):
        assert re.search(rf"^{name} +\S", text, re.M), text


def test_commands_and_options_are_guessed(run, lockstep):
    assert "did you mean config?" in run(lockstep, "confg").stderr
    assert "did you mean --set?" in run(lockstep, "config", "--sett", "a=b").stderr
    shortened = run(lockstep, "config", "--sch")
    assert shortened.returncode == 2, "a shortened option must not be taken"
    for args in (["--nope"], ["help", "confg"], ["config", "a", "b"], ["config", "--set"], ["--log", "loud", "config"], ["--log"]):
        result = run(lockstep, *args)
        assert result.returncode == 2, args
        assert result.stderr.startswith("error: "), args


def test_help_is_had_without_a_dash(run, lockstep):
    pages = [run(lockstep, *words, check=True).stdout for words in ([], ["help"], ["--help"])]
    assert pages[0] == pages[1] == pages[2] and "commands:" in pages[0]
    assert run(lockstep, "help", "train", check=True).stdout == run(lockstep, "train", "--help", check=True).stdout
    assert run(lockstep, "help", "bench", "step", check=True).stdout.startswith("lockstep bench step: ")


def test_a_setting_without_its_set_is_told_what_to_write(run, lockstep, tmp_path):
    for words in (["configs/mnist.yaml", "--epochs", "3"], ["configs/mnist.yaml", "train.epochs=3"]):
        result = run(lockstep, "train", *words, cwd=tmp_path)
        assert result.returncode == 2 and "did you mean --set train.epochs=3?" in result.stderr, result.stderr
    assert "did you mean configs/mnist.yaml?" in run(lockstep, "config", "configs/mnits.yaml", cwd=tmp_path).stderr


def test_every_mistake_is_said_once(mpirun, lockstep, tmp_path):
    path = tmp_path / "c.yaml"
    path.write_text("train: {epoch: 3, mode: dpd}\noptim: {learning_rate: 0.1}\n")
    result = mpirun(3, lockstep, "train", path, quiet=True, cwd=tmp_path)
    assert result.returncode == 2 and result.stderr.count("error: 3 mistakes in the config") == 1, result.stderr
    for words in (f"1. unknown key train.epoch\n     where: {path}:1:9\n", "2. train.mode must be", "did you mean optim.lr?"):
        assert result.stderr.count(words) == 1, result.stderr


def test_warnings_obey_log(run, lockstep):
    unused = ["config", "--set", "optim.name=adam", "--set", "optim.momentum=0.5"]
    assert "warning: optim.momentum is set and not used" in run(lockstep, *unused, check=True).stderr
    assert run(lockstep, "--log", "error", *unused, check=True).stderr == ""
    assert run(lockstep, *unused, "--log", "silent", check=True).stderr == ""
    assert "warning" in run(lockstep, *unused, "-q", check=True).stderr
    assert run(lockstep, "-q", "--log", "error", *unused, check=True).stderr == ""


@pytest.mark.parametrize("words", [("-q", "train"), ("train", "--quiet")], ids=" ".join)
def test_a_quiet_training_says_nothing(words, run, lockstep, tmp_path):
    config = write_config(tmp_path, PIMA)
    result = run(lockstep, *words, config, "--set", "train.epochs=1", cwd=tmp_path, env=ANY_CPU, check=True)
    assert result.output == "", result.output
    assert len((tmp_path / "runs/pima/metrics.jsonl").read_text().splitlines()) > 2
    assert "Epoch 0 |" in run(lockstep, "--log", "warning", "train", config, "--set", "train.epochs=1", cwd=tmp_path,
                              env=ANY_CPU, check=True).stdout


@pytest.mark.parametrize("words, meant", [
    (["c.yaml"], "did you mean lockstep train c.yaml? "), (["runs/a"], "did you mean lockstep status runs/a? "),
    (["statsu"], "did you mean status? "), (["nothing.at.all"], "to do: see: lockstep --help")])
def test_what_is_no_command_is_told_what_it_was_meant_for(words, meant, run, lockstep, tmp_path):
    (tmp_path / "runs/a").mkdir(parents=True)
    (tmp_path / "runs/a/config.yaml").write_text("")
    result = run(lockstep, *words, cwd=tmp_path)
    assert result.returncode == 2 and meant in result.stderr, result.stderr


def test_help_has_help(run, lockstep):
    assert run(lockstep, "help", "help", check=True).stdout == run(lockstep, "--help", check=True).stdout


def test_a_full_disk_is_an_error_and_a_reader_that_leaves_is_none(lockstep):
    with open("/dev/full", "w") as full:
        result = subprocess.run([lockstep, "config"], stdout=full, stderr=subprocess.PIPE, text=True)
    assert result.returncode == 1
    assert "No space left" in result.stderr
    reading, writing = os.pipe()
    os.close(reading)
    try:
        result = subprocess.run([lockstep, "config"], stdout=writing, stderr=subprocess.PIPE, text=True)
    finally:
        os.close(writing)
    assert (result.returncode, result.stderr) == (0, "")


def test_an_option_that_no_row_knows_is_an_error_with_the_nearest_name(run, lockstep, tmp_path):
    """The schema cannot know: what is an option depends on the rows."""
    (tmp_path / "c.yaml").write_text("task: {name: mnist}\nmodel: {name: mlp, options: {hiden: 3}}\n")
    refused = run(lockstep, "config", tmp_path / "c.yaml")
    assert refused.returncode == 2, refused.output
    assert "unknown option model.options.hiden" in refused.stderr and "did you mean model.hidden?" in refused.stderr
    for words, near in ((("model.name=bert_layer", "model.options.hedas=2"), "model.options.heads"),
                        (("ddp.comm_hook=powersgd", "ddp.options.warm_strat=true"), "ddp.options.warm_start")):
        odd = run(lockstep, "config", *[part for word in words for part in ("--set", word)])
        assert odd.returncode == 2 and f"did you mean {near}?" in odd.stderr, odd.output
    known = run(lockstep, "config", "--set", "model.name=mlp", "--set", "model.options.heads=2", check=True)
    assert "warning: model.options is set and not used: model.name is mlp" in known.stderr


SAYS_THAT_IT_RUNS = """
#include <stdio.h>
__attribute__((constructor)) static void run(void) { fprintf(stderr, "the library runs\\n"); }
"""


@pytest.mark.parametrize("words", [(), ("--schema",), ("--changed",)])
def test_no_library_of_another_user_is_run_to_read_a_config(run, lockstep, tmp_path, words):
    library = shared_library(tmp_path, "theirs.so", SAYS_THAT_IT_RUNS)
    (tmp_path / "c.yaml").write_text(f"task: {{name: mnist}}\noptim: {{name: {library}}}\n")
    own = run(lockstep, "config", tmp_path / "c.yaml", *words)
    assert "the library runs" in own.stderr
    try:
        os.chown(library, 65534, 65534)
    except PermissionError:
        pytest.skip("only root gives files away")
    for name in (library, f"{library}:row"):
        theirs = run(lockstep, "config", tmp_path / "c.yaml", "--set", f"optim.name={name}", *words)
        assert theirs.returncode == 2 and "the library runs" not in theirs.stderr
        assert "belongs to another user (uid 65534)" in theirs.stderr and str(library) in theirs.stderr


def test_the_schema_agrees_with_the_program(run, lockstep, tmp_path):
    """What the schema accepts the program accepts, and the other way round."""
    jsonschema = pytest.importorskip("jsonschema", reason="the Python package jsonschema is not there")
    schema = json.loads(run(lockstep, "config", "--schema", check=True).stdout)
    jsonschema.Draft202012Validator.check_schema(schema)
    validator = jsonschema.Draft202012Validator(schema)
    cases = [
        ({}, True), ({"train": None}, True), ({"train": {"epochs": 3}}, True), ({"train": {"epochs": 0}}, False),
        ({"train": {"epochs": "3"}}, False), ({"train": {"epoch": 3}}, False), ({"trian": {}}, False),
        ({"optim": {"betas": [0.9, 0.99]}}, True), ({"optim": {"betas": [0.9]}}, False),
        ({"optim": {"betas": [0.9, 1.0]}}, False), ({"optim": {"weight_decay": "default"}}, True),
        ({"optim": {"weight_decay": "none"}}, False), ({"optim": {"lr": -1}}, False),
        ({"ddp": {"bucket_cap_mb": -1}}, False), ({"ddp": {"bucket_cap_mb": 0.5}}, True),
        ({"launch": {"timeout": "1h30m"}}, True), ({"launch": {"timeout": 60}}, True),
        ({"launch": {"timeout": "soon"}}, False), ({"launch": {"timeout": -1}}, False),
        ({"data": {"shuffle": "yes"}}, False), ({"ddp": {"comm_hook": "powersgd", "options": {"random_seed": 1}}}, True),
        ({"task": {"features": ["a", "b"]}}, True), ({"task": {"features": "a"}}, False),
        ({"model": {"hidden": [3, 0]}}, False), ([], False),
    ]
    for document, good in cases:
        path = tmp_path / "case.yaml"
        path.write_text(json.dumps(document))  # JSON is YAML
        result = run(lockstep, "--log", "error", "config", path)
        assert (result.returncode == 0) == good, (document, result.stderr)
        assert validator.is_valid(document) == good, document


def test_the_schema_is_one_that_editors_read(run, lockstep):
    schema = json.loads(run(lockstep, "config", "--schema", check=True).stdout)
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    for section, content in schema["properties"].items():
        assert content["additionalProperties"] is False, section
        for name, key in content["properties"].items():
            assert key["description"], f"{section}.{name}"
            assert {"type", "anyOf"} & key.keys(), f"{section}.{name}"
