"""lockstep submit before a scheduler's stand-ins: what it writes, refuses and says, how it waits, and what hostile texts become."""

import os
import re
import signal
import subprocess

import pytest
from cluster_kit import QUICK
from conftest import clean_environment
from hostile import BYTES, NASTY, recording_home
from process_kit import PATIENCE, line_with
from submit_kit import PIPES, fake, work  # noqa: F401  (a fixture among them)

pytestmark = pytest.mark.about("cluster", "submit", "cli")


def test_a_dry_run_shows_command_and_script_and_leaves_nothing(lockstep, run, work):  # noqa: F811
    shown = run(lockstep, "submit", "quick.yaml", "--scheduler", "slurm", "--dry-run", cwd=work, check=True).stdout
    first, _, script = shown.partition("\n\n")
    assert re.fullmatch(rf"sbatch --parsable \$'{work}/runs/.jobs/lockstep-[0-9-]+.sh'", first)
    assert script.startswith("#!/bin/bash\n") and script.endswith(" quick.yaml\n")
    assert not list((work / "runs").iterdir())


def test_what_cannot_be_submitted_is_wrong_input(lockstep, run, work):  # noqa: F811
    env = fake(work.parent, sbatch="touch submitted; echo 1")
    for words, what in (("--sweep optim.lr=0.1,,0.2", "a value is empty"), ("--sweep optim.lr=0.1,0.1", "duplicate value"),
                        ("--sweep run.seed=4..0", "the range ends before it starts"),
                        ("--sweep run.seed=0..99 --sweep data.batch_size=1..99", "more than 1000 tasks"),
                        ("--sweep optim.lr=1,2 --sweep optim.lr=3", "duplicate key")):
        result = run(lockstep, "submit", "quick.yaml", *words.split(), cwd=work, env=env)
        assert (result.returncode, result.stdout) == (2, "") and what in result.stderr, result.output
    assert not list((work / "runs").iterdir()) and not (work / "submitted").exists()


def test_a_scheduler_that_is_not_clear_is_asked_for(lockstep, run, work):  # noqa: F811
    neither = run(lockstep, "submit", "quick.yaml", cwd=work, env=fake(work.parent))
    assert neither.returncode == 2 and "neither sbatch nor qsub" in neither.stderr and "--scheduler" in neither.stderr
    missing = run(lockstep, "submit", "quick.yaml", "--scheduler", "slurm", cwd=work, env=fake(work.parent))
    assert missing.returncode == 2 and "sbatch is not installed here" in missing.stderr
    both = run(lockstep, "submit", "quick.yaml", cwd=work, env=fake(work.parent, sbatch="echo 7", qsub="echo 8"), check=True)
    assert both.stdout == "7\n", "the qsub beside an sbatch calls it"


def test_links_that_were_submitted_before_a_refusal_are_named(lockstep, run, work):  # noqa: F811
    once = "[ -e once ] && { echo 'too many jobs' >&2; exit 1; }; touch once; echo banner; echo '41;cluster'"
    result = run(lockstep, "submit", "quick.yaml", "--chain", 2, cwd=work, env=fake(work.parent, sbatch=once))
    assert (result.returncode, result.stdout) == (1, "41\n")
    said = ("link 2 of 2 was not submitted", "scancel --clusters=cluster 41", "too many jobs")
    assert all(words in result.stderr for words in said), result.stderr


def test_ctrl_c_leaves_the_job_alone(lockstep, start, work):  # noqa: F811
    process = start(lockstep, "submit", "quick.yaml", "--wait", cwd=work, **PIPES,
                    env=fake(work.parent, sbatch="echo 7", squeue="echo '7|PENDING|Resources'", scancel="touch cancelled"))
    assert line_with(process, process.stdout) == "7"
    line_with(process, process.stderr, "scancel 7")
    line_with(process, process.stderr, "job 7 is queued: PENDING (Resources)")
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=PATIENCE)
    assert process.returncode == -signal.SIGINT  # 130 in a shell
    assert not (work / "cancelled").exists()


def test_a_job_that_is_over_at_the_first_look_names_its_log(lockstep, run, work):  # noqa: F811
    over = "printf 'begin 7\\nend 7 2 \\n' >\"${2%.sh}.record\"; echo 7"
    result = run(lockstep, "submit", "quick.yaml", "--wait", cwd=work, env=fake(work.parent, sbatch=over, squeue="echo '7|COMPLETED|None'"))
    assert result.returncode == 2 and "without creating a run; see lockstep-7.out" in result.stdout, result.output


def test_a_chain_ends_as_its_last_link_that_ran(lockstep, run, work):  # noqa: F811
    """The first link stops early; the second is over before it begins a run."""
    over = """script=${2%.sh}; link=${script##*.}; end='75 runs/x'; [ $link = 1 ] || end=1; : >lockstep-$link.out
              echo "begin $link\nend $link $end" >"$script.record"; echo $link"""
    result = run(lockstep, "submit", "quick.yaml", "--chain", 2, "--wait", cwd=work,
                 env=fake(work.parent, sbatch=over, squeue="echo '1|COMPLETED|None'; echo '2|COMPLETED|None'"))
    assert result.returncode == 75 and "link 2 of 2" in result.stderr, result.output


def submit(lockstep, folder, *words, **variables):
    return subprocess.run([str(lockstep), "submit", *words], cwd=folder, env=clean_environment(**variables), capture_output=True,
                          stdin=subprocess.DEVNULL)


def noted(path):
    return os.fsdecode(path.read_bytes()).split("\0")[:-1]


@pytest.fixture
def at_once(tmp_path):
    """A scheduler that runs a script at once, and a home whose program notes its words in tmp_path/record."""
    home = recording_home(tmp_path / "home")
    programs = fake(tmp_path, sbatch="for script; do :; done; /bin/bash \"$script\" >/dev/null 2>\"$RECORD.said\"; echo 7")
    return {**programs, "LOCKSTEP_HOME": str(home), "LOCKSTEP_PROGRAM": str(home / "program"), "RECORD": str(tmp_path / "record"), "LC_ALL": "C.UTF-8"}


def contents(folder):
    return sorted(os.fsdecode(path) for path in os.listdir(os.fsencode(folder)))


@pytest.mark.parametrize("every", [25, pytest.param(1, marks=pytest.mark.full)])
def test_a_config_and_a_run_dir_are_names_alone(every, lockstep, tmp_path, at_once):
    texts, taken = (NASTY + BYTES)[::every], 0
    for number, text in enumerate(texts):
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
    assert taken > len(texts) * 3 // 4


def test_a_value_that_is_no_utf8_is_refused(lockstep, tmp_path, at_once):
    (tmp_path / "c.yaml").write_text(QUICK)
    text = BYTES[0]
    for words in (["--set", f"task.label={text}"], ["--set", f"run.dir={text}"], ["--sweep", f"task.label=a,{text}"]):
        done = submit(lockstep, tmp_path, "c.yaml", *words, **at_once)
        assert (done.returncode, done.stdout) == (2, b"") and b"is not UTF-8 text" in done.stderr
        assert not (tmp_path / "record").exists() and not (tmp_path / "runs").exists()
