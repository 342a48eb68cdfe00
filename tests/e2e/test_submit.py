"""lockstep submit before a scheduler's stand-ins: what it writes, refuses and says, and how it waits."""

import os
import re
import signal

import pytest
from cluster_kit import SOURCE
from process_kit import PATIENCE, line_with, on_terminal, wait_for
from submit_kit import AS_RECORDED, PIPES, fake, work  # noqa: F401  (a fixture among them)

pytestmark = pytest.mark.about("cluster", "submit", "cli")


@pytest.mark.parametrize("scheduler, command", [("slurm", "sbatch --parsable"), ("pbs", "qsub")])
def test_a_dry_run_shows_command_and_script_and_leaves_nothing(scheduler, command, lockstep, run, work):  # noqa: F811
    shown = run(lockstep, "submit", "quick.yaml", "--scheduler", scheduler, "--dry-run", cwd=work, check=True).stdout
    first, _, script = shown.partition("\n\n")
    assert re.fullmatch(rf"{command} '{work}/runs/.jobs/lockstep-[0-9-]+.sh'", first)
    assert script.startswith("#!/bin/bash\n") and script.endswith("lockstep_train quick.yaml\n")
    assert not list((work / "runs").iterdir())


def test_a_dry_run_of_a_chain_has_every_link(lockstep, run, work):  # noqa: F811
    shown = run(lockstep, "submit", "quick.yaml", "--scheduler", "slurm", "--chain", 3, "--dry-run", cwd=work, check=True).stdout
    assert shown.count("#!/bin/bash") == 3
    assert re.findall("--dependency=(.*)", shown) == ["afterany:JOB-OF-LINK-1", "afterany:JOB-OF-LINK-2"]
    assert len(set(re.findall("LOCKSTEP_CHAIN=(.*)", shown))) == 1 and len(set(re.findall("LOCKSTEP_RECORD=(.*)", shown))) == 3


def test_a_sweep_is_the_product_with_a_name_each(lockstep, run, work):  # noqa: F811
    shown = run(lockstep, "submit", "quick.yaml", "--scheduler", "pbs", "--sweep", "optim.lr=0.1,0.01", "--sweep", "run.seed=0..1",
                "--sweep", "optim.betas=[0.8, 0.9]", "--dry-run", cwd=work, check=True).stdout
    assert "#PBS -J 0-3\n" in shown
    assert re.findall("run.name=([^) ]*)", shown) == [
        f"quick-lr{rate}-seed{seed}-betas0.8_0.9" for rate in ("0.1", "0.01") for seed in (0, 1)]
    assert shown.count("'optim.betas=[0.8, 0.9]'") == 4


@pytest.mark.parametrize("values", ["a b,a_b", "x;touch `touch owned`,$$(touch owned)", "it's,\"its\"", "\n,\t"])
def test_hostile_values_are_words_of_the_script_and_names_differ(values, lockstep, run, work):  # noqa: F811
    shown = run(lockstep, "submit", "quick.yaml", "--scheduler", "slurm", "--sweep", f"data.root={values}", "--dry-run",
                cwd=work, check=True).stdout
    script = shown.partition("\n\n")[2]
    cases = script[script.index("case "):script.index("lockstep_train ")]
    said = run("bash", "-c", 'die() { echo "$1"; }; for SLURM_ARRAY_TASK_ID in 0 1; do ' + cases +
               "printf '%s\\0' \"${settings[@]}\"; done", cwd=work, check=True).stdout.split("\0")
    assert [said[1], said[5]] == [f"data.root={value}" for value in values.split(",")]
    assert said[3] != said[7] and said[3].startswith("run.name=quick-root") and not (work / "owned").exists()


@pytest.mark.parametrize("words, what", [
    (["--sweep", "optim.lr"], "a key and its values are wanted"), (["--sweep", "optim.lr=0.1,,0.2"], "a value is empty"),
    (["--sweep", "optim.lr=0.1,0.1"], "a value is there twice"), (["--sweep", "run.seed=4..0"], "the wrong way round"),
    (["--sweep", "run.seed=0..1000"], "more than 1000"), (["--sweep", "run.seed=0..99", "--sweep", "data.batch_size=1..99"],
                                                           "more than 1000 tasks"),
    (["--sweep", "optim.lr=1,2", "--sweep", "optim.lr=3"], "swept twice"), (["--sweep", "optim.lrr=1,2"], "unknown key optim.lrr"),
    (["--sweep", "optim.lr=0.1,fast"], "optim.lr"), (["--chain", "0"], "1 to 100"), (["--chain", "2", "--sweep", "run.seed=0,1"],
                                                                                    "exclude each other"),
    (["--scheduler", "lsf"], "no scheduler 'lsf'"), (["--site", "slurm", "--scheduler", "pbs"], "a site of slurm, not of pbs"),
    (["--set", "optim.lrr=1"], "unknown key optim.lrr"),
    (["--site", "./plain.yaml", "--sweep", "run.seed=0,1"], "takes no job arrays"),
    (["--site", "gadi", "--account", "a00", "--time", "100h"], "at most 48h"), (["--time", "soon"], "no time")])
def test_what_cannot_be_submitted_is_wrong_input(words, what, lockstep, run, work):  # noqa: F811
    (work / "plain.yaml").write_text("scheduler: pbs\narrays: no\n")
    scheduler = [] if "--site" in words or "--scheduler" in words else ["--scheduler", "slurm"]
    result = run(lockstep, "submit", "quick.yaml", *scheduler, *words, cwd=work,
                 env=fake(work.parent, sbatch="touch submitted; echo 1", qsub="touch submitted; echo 1.x"))
    assert (result.returncode, result.stdout) == (2, "") and what in result.stderr, result.output
    assert not list((work / "runs").iterdir()) and not (work / "submitted").exists()


@pytest.mark.parametrize("programs, scheduler", [({"sbatch": "echo 7"}, "slurm"), ({"qsub": "echo 7.server"}, "pbs")])
def test_the_scheduler_that_is_there_is_taken(programs, scheduler, lockstep, run, work):  # noqa: F811
    result = run(lockstep, "submit", "quick.yaml", cwd=work, env=fake(work.parent, **programs), check=True)
    assert result.stdout == {"slurm": "7\n", "pbs": "7.server\n"}[scheduler]
    assert {"slurm": "scancel 7", "pbs": "qdel 7.server"}[scheduler] in result.stderr
    script, = (work / "runs/.jobs").glob("*.sh")
    assert ("#SBATCH" in script.read_text()) == (scheduler == "slurm")


@pytest.mark.parametrize("programs, what", [({}, "neither sbatch nor qsub"), ({"sbatch": "echo 7", "qsub": "echo 7"}, "both sbatch")])
def test_a_scheduler_that_is_not_clear_is_asked_for(programs, what, lockstep, run, work):  # noqa: F811
    result = run(lockstep, "submit", "quick.yaml", cwd=work, env=fake(work.parent, **programs))
    assert result.returncode == 2 and what in result.stderr and "--scheduler" in result.stderr


def test_a_command_that_is_missing_is_said(lockstep, run, work):  # noqa: F811
    result = run(lockstep, "submit", "quick.yaml", "--scheduler", "slurm", cwd=work, env=fake(work.parent))
    assert result.returncode == 2 and "there is no sbatch here" in result.stderr


@pytest.mark.parametrize("text, what", [("echo 'error: Invalid account' >&2; exit 1", "Invalid account"),
                                        ("exit 3", "status 3"), ("echo welcome", "names no id"), ("kill -9 $$", "status 137")])
def test_a_refusal_is_told_in_the_schedulers_words(text, what, lockstep, run, work):  # noqa: F811
    result = run(lockstep, "submit", "quick.yaml", cwd=work, env=fake(work.parent, sbatch=text))
    assert (result.returncode, result.stdout) == (1, "") and what in result.stderr and "to do: " in result.stderr


def test_links_that_were_submitted_before_a_refusal_are_named(lockstep, run, work):  # noqa: F811
    once = "[ -e once ] && { echo 'too many jobs' >&2; exit 1; }; touch once; echo banner; echo '41;cluster'"
    result = run(lockstep, "submit", "quick.yaml", "--chain", 2, cwd=work, env=fake(work.parent, sbatch=once))
    assert (result.returncode, result.stdout) == (1, "41\n")
    said = ("link 2 of 2 was not submitted", "scancel --clusters=cluster 41", "too many jobs")
    assert all(words in result.stderr for words in said), result.stderr


def record(work, text):  # noqa: F811
    path, = (work / "runs/.jobs").glob("*.sh")
    path.with_suffix(".record").write_text(text)


def test_ctrl_c_leaves_the_job_alone(lockstep, start, work):  # noqa: F811
    process = start(lockstep, "submit", "quick.yaml", "--wait", cwd=work, **PIPES,
                    env=fake(work.parent, sbatch="echo 7", squeue="echo '7|PENDING|Resources'", scancel="touch cancelled"))
    assert line_with(process, process.stdout) == "7"
    line_with(process, process.stderr, "job 7 is queued: PENDING (Resources)")
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130 and "goes on by itself" in err and "scancel 7" in err
    assert not (work / "cancelled").exists()


@pytest.mark.parametrize("text, status, what", [
    ("begin 7\nend 7 2 \n", 2, "ended with status 2, and left no run: lockstep-7.out says why"),
    ("begin 7\nagain 7\nbegin 7\nend 7 1 /nowhere\n", 1, "status 1"),
    ("begin 7\nnext 7 8\nend 7 75 \nbegin 8\nend 8 0 \n", 0, "job 8 ended with status 0")])
def test_the_record_says_how_it_ended(text, status, what, lockstep, start, work):  # noqa: F811
    process = start(lockstep, "submit", "quick.yaml", "--wait", cwd=work, **PIPES,
                    env=fake(work.parent, sbatch="echo 7", squeue=AS_RECORDED))
    assert line_with(process, process.stdout) == "7"
    record(work, text)
    out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == status and what in out, out + err


def test_a_job_that_is_over_at_the_first_look_names_its_log(lockstep, run, work):  # noqa: F811
    over = "printf 'begin 7\\nend 7 2 \\n' >\"${2%.sh}.record\"; echo 7"
    result = run(lockstep, "submit", "quick.yaml", "--wait", cwd=work, env=fake(work.parent, sbatch=over, squeue=AS_RECORDED))
    assert result.returncode == 2 and "left no run: lockstep-7.out says why" in result.stdout, result.output


@pytest.mark.parametrize("wait", ["while :; do sleep 0.1; done", "x=$(sleep 9 | cat)", "sleep 9"])
def test_a_job_cancelled_before_its_ranks_run_records_no_end_of_its_own(wait, start, tmp_path):
    script = f". '{SOURCE}/job_scripts/record.sh'; job_id() {{ echo 7; }}; record_begin; record file $'a\nend 7 0'; {wait}"
    job = start("bash", "-c", script, cwd=tmp_path, env={"LOCKSTEP_RECORD": str(tmp_path / "record")})
    wait_for(lambda: (tmp_path / "record").exists() and "file" in (tmp_path / "record").read_text(), what="the record")
    os.killpg(job.pid, signal.SIGTERM)
    assert job.wait(PATIENCE) == 143
    assert (tmp_path / "record").read_text() == "begin 7\nfile 7 a end 7 0\n"


@pytest.mark.parametrize("programs", [{"squeue": "echo '7|CANCELLED|None'"},
                                      {"squeue": "echo 'Invalid job id specified' >&2; exit 1", "sacct": "echo '7|CANCELLED'"}])
def test_a_job_that_is_over_by_the_schedulers_word_is_waited_for_no_longer(programs, lockstep, run, work):  # noqa: F811
    result = run(lockstep, "submit", "quick.yaml", "--wait", cwd=work, env=fake(work.parent, sbatch="echo 7", **programs))
    assert result.returncode == 1
    assert "job 7 ended without a word: the scheduler says CANCELLED. Its log: lockstep-7.out, which is not there" in result.stdout


def test_a_job_that_the_scheduler_does_not_know_is_waited_for(lockstep, start, work):  # noqa: F811
    process = start(lockstep, "submit", "quick.yaml", "--wait", cwd=work, **PIPES,
                    env=fake(work.parent, sbatch="echo 7", squeue="true", sacct="echo 'no accounts here' >&2; exit 1"))
    line_with(process, process.stderr, "does not know job 7; waiting for a word of it, for 120 s at most")
    record(work, "begin 7\nend 7 0 \n")
    out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0 and "job 7 ended with status 0" in out, out + err


def test_a_terminal_shows_one_line_that_redraws(lockstep, start, work):  # noqa: F811
    """And an sbatch that leaves a child with its output open is not waited for."""
    sbatch = "echo 7; (sleep 2; printf 'begin 7\\nend 7 0 \\n' >\"${2%.sh}.record\") &"
    text = on_terminal(start, lockstep, "submit", "quick.yaml", "--wait", columns=40, cwd=work,
                       env=fake(work.parent, sbatch=sbatch, squeue="STATE='PENDING|ReqNodeNotAvail, and many more words'\n" + AS_RECORDED))
    drawn = re.findall(r"\r(job 7 is queued[^\r\x1b]*)\x1b\[K", text)
    assert drawn and all(len(line) < 40 for line in drawn), repr(text)
    assert "job 7 ended with status 0" in text
