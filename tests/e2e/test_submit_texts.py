"""lockstep submit and hostile texts: whatever stands in a value, a name or a folder, a job gets it as it is, and nothing runs it."""

import os
import subprocess

import pytest
from cluster_kit import QUICK, SOURCE
from conftest import clean_environment
from hostile import BYTES, NASTY, recording_home
from slurm_kit import lab  # noqa: F401  (fixture)
from submit_kit import fake

pytestmark = pytest.mark.about("cluster", "submit")

TEXTS = NASTY + BYTES


def submit(lockstep, folder, *words, **variables):
    return subprocess.run([str(lockstep), "submit", *words], cwd=folder, env=clean_environment(**variables), capture_output=True,
                          stdin=subprocess.DEVNULL)


def noted(path):
    return os.fsdecode(path.read_bytes()).split("\0")[:-1]


@pytest.fixture
def at_once(tmp_path):
    """A scheduler that runs a script at once, and a home whose lockstep_train notes its words in tmp_path/record."""
    home = recording_home(tmp_path / "home")
    programs = fake(tmp_path, sbatch="for script; do :; done; /bin/bash \"$script\" >/dev/null 2>\"$RECORD.said\"; echo 7")
    return {**programs, "LOCKSTEP_HOME": str(home), "RECORD": str(tmp_path / "record"), "LC_ALL": "C.UTF-8"}


def contents(folder):
    return sorted(os.fsdecode(path) for path in os.listdir(os.fsencode(folder)))


@pytest.mark.parametrize("every", [9, pytest.param(1, marks=pytest.mark.full)])
def test_a_config_and_a_run_dir_are_names_alone(every, lockstep, tmp_path, at_once):
    taken = 0
    for number, text in enumerate(TEXTS[::every]):
        folder = tmp_path / f"place{number}"
        folder.mkdir()
        name = text.replace("/", "|")[:60]
        (folder / f"{name}.yaml").write_text(QUICK)
        below = "runs" if text in BYTES else f"dir/{name}"
        sets = [] if text in BYTES else ["--set", f"run.dir={below}".replace("$", "$$")]
        done = submit(lockstep, folder, *sets, "--", f"{name}.yaml", **at_once)
        if done.returncode == 2:  # refused, in words
            assert b"error: run.dir" in done.stderr and contents(folder) == [f"{name}.yaml"], (text, done.stderr)
            continue
        assert (done.returncode, done.stdout) == (0, b"7\n"), (text, done.stderr)
        assert contents(folder) == sorted([f"{name}.yaml", below.split("/")[0]]), text
        assert noted(tmp_path / "record") == [("./" if name.startswith("-") else "") + f"{name}.yaml", *sets]
        kept, = noted(tmp_path / "record.kept")
        assert kept.startswith(f"{folder}/{below}/.jobs/lockstep-") and (tmp_path / "record.said").read_bytes() == b""
        taken += 1
    assert taken > len(TEXTS[::every]) * 3 // 4


@pytest.mark.parametrize("text", BYTES)
def test_a_value_that_is_no_utf8_is_refused(text, lockstep, tmp_path, at_once):
    (tmp_path / "c.yaml").write_text(QUICK)
    for words in (["--set", f"task.label={text}"], ["--set", f"run.dir={text}"], ["--sweep", f"task.label=a,{text}"]):
        done = submit(lockstep, tmp_path, "c.yaml", *words, **at_once)
        assert (done.returncode, done.stdout) == (2, b"") and b"is not UTF-8 text" in done.stderr
        assert not (tmp_path / "record").exists() and not (tmp_path / "runs").exists()


def test_a_sweeps_values_are_values_alone(lockstep, tmp_path, at_once):
    values = [text for text in NASTY if not set(text) & set(",[]{}'\"")]
    assert len(values) > 60
    folder = tmp_path / "place"
    folder.mkdir()
    (folder / "c.yaml").write_text(QUICK)
    done = submit(lockstep, folder, "c.yaml", "--sweep", "task.label=" + ",".join(values), **at_once)
    assert done.returncode == 0, done.stderr
    script, = (folder / "runs/.jobs").glob("*.sh")
    for index, value in enumerate(values):
        ran = subprocess.run(["/bin/bash", script], cwd=folder, env=clean_environment(**at_once, SLURM_ARRAY_TASK_ID=index),
                             capture_output=True)
        assert ran.returncode == 0 and ran.stderr == b"", ran.stderr
        assert noted(tmp_path / "record")[:3] == ["c.yaml", "--set", f"task.label={value}"]
    assert contents(folder) == ["c.yaml", "runs"]


@pytest.mark.parametrize("text", ["J\u00f6rg", "$(touch pwned)", "a b", "a\n#SBATCH --time=9", "-x", "a/b", BYTES[0]])
def test_a_jobs_name_is_a_word(text, lockstep, tmp_path, at_once):
    (tmp_path / "c.yaml").write_text(QUICK)
    done = submit(lockstep, tmp_path, "c.yaml", f"--name={text}", **at_once)
    assert (done.returncode, done.stdout) == (2, b"") and b"is no name for a job" in done.stderr


def test_slurm_brings_every_text_to_the_ranks(lab, lockstep, tmp_path):  # noqa: F811
    program = tmp_path / "noting"
    program.write_text(f"""#!/bin/bash
[ "$1" != train ] || {{ printf '%s\\0' "$@" >{tmp_path}/words; echo {tmp_path}/run >"$LOCKSTEP_RUN_FILE"; }}
""")
    program.chmod(0o755)
    folder = tmp_path / os.fsdecode(b"J\xf6rg J\xc3\xb6rg's $(touch pwned)")
    folder.mkdir()
    (folder / "c.yaml").write_text(QUICK)
    sets = [word for text in NASTY for word in ("--set", f"task.label={text}")]
    words = ["submit", "c.yaml", "--scheduler", "slurm", "--ranks-per-node", 1, *sets, "--wait"]
    settings = {"LOCKSTEP_PROGRAM": str(program), "LOCKSTEP_HOME": str(SOURCE), "LOCKSTEP_THREADS_PER_CORE": "1"}
    done = subprocess.run(lab.argv([lockstep, *words], folder), env=lab.environment(settings), capture_output=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert noted(tmp_path / "words") == ["train", "c.yaml", "--resume", "auto", *sets]
    assert "pwned" not in contents(folder)
