"""lockstep submit and the scheduler's commands: what they are told, what they are not, and what becomes of their words."""

import os
import re
import signal
import subprocess

import pytest
from cluster_kit import QUICK, SOURCE, runs
from cluster_kit import site  # noqa: F401  (fixture)
from process_kit import wait_for
from slurm_kit import lab  # noqa: F401  (fixture)
from submit_kit import fake

PIPES = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}


@pytest.fixture
def place(tmp_path):
    folder = tmp_path / "my work"
    folder.mkdir()
    (folder / "quick.yaml").write_text(QUICK)
    return folder


def over(place):
    """The job's script has said that it is done."""
    script, = (place / "runs/.jobs").glob("*.sh")
    script.with_suffix(".record").write_text("begin 41\nend 41 0 \n")


# ---- several clusters ---------------------------------------------------------------------------------------


def test_the_cluster_that_sbatch_names_is_asked(lockstep, start, place):
    process = start(lockstep, "submit", "quick.yaml", "--wait", cwd=place, **PIPES,
                    env=fake(place.parent, sbatch="echo '41;east'", squeue="echo \"$*\" >>asked", sacct="echo \"$*\" >>asked"))
    assert process.stdout.readline() == "41\n"
    wait_for(lambda: (place / "asked").exists() and (place / "asked").read_text().count("\n") == 2, what="squeue and sacct")
    over(place)
    assert process.wait(20) == 0
    assert all("--clusters=east" in line for line in (place / "asked").read_text().splitlines())


def test_a_chain_stays_on_its_cluster_and_is_cancelled_there(lockstep, run, place):
    env = fake(place.parent, sbatch="echo \"$*\" >>asked; echo '41;east'")
    result = run(lockstep, "submit", "quick.yaml", "--chain", 2, cwd=place, env=env, check=True)
    first, second = (place / "asked").read_text().splitlines()
    assert "--clusters" not in first and "--parsable --clusters=east " in second
    assert "scancel --clusters=east 41" in result.stderr and "squeue --clusters=east --jobs=41" in result.stderr


# ---- the user's own environment -----------------------------------------------------------------------------


HEARD = {"SBATCH_ACCOUNT": "a00", "SBATCH_PARTITION": "p", "SBATCH_QOS": "q", "SLURM_CONF": "/etc/slurm.conf", "SLURM_CLUSTERS": "c",
         "SBATCH_EXPORT": "ALL", "SLURM_CPU_BIND": "none"}
UNHEARD = {"SBATCH_OUTPUT": "x", "SBATCH_ERROR": "x", "SBATCH_JOB_NAME": "x", "SBATCH_TIMELIMIT": "1", "SBATCH_WAIT": "1",
           "SBATCH_OPEN_MODE": "truncate", "SBATCH_SIGNAL": "INT@1", "SBATCH_NO_REQUEUE": "1", "SBATCH_ARRAY_INX": "0-3",
           "SLURM_RESTART_COUNT": "9", "SLURM_ARRAY_TASK_ID": "3", "SLURM_JOB_ID": "5", "LOCKSTEP_RESTART": "9",
           "SQUEUE_STATES": "PENDING"}


def given(place):
    return {line.split("=")[0] for line in (place / "given").read_text().splitlines() if "=" in line}


def test_sbatch_hears_what_is_meant_for_it_alone(lockstep, run, place):
    env = fake(place.parent, sbatch="/usr/bin/env >given; echo 7")
    result = run(lockstep, "submit", "quick.yaml", cwd=place, env={**env, **HEARD, **UNHEARD}, check=True)
    assert set(HEARD) <= given(place) and not set(UNHEARD) & given(place)
    said, = [line for line in result.stderr.splitlines() if "not heard for this job" in line]
    assert {name for name in UNHEARD if name.startswith("SBATCH_")} == set(re.findall(r"SBATCH_\w+", said))


def test_what_was_asked_for_counts_before_a_variable(lockstep, run, place):
    env = fake(place.parent, sbatch="/usr/bin/env >given; echo 7")
    run(lockstep, "submit", "quick.yaml", "--account", "mine", "--queue", "q", cwd=place, env={**env, **HEARD}, check=True)
    assert set(HEARD) - given(place) == {"SBATCH_ACCOUNT", "SBATCH_PARTITION"}


def test_a_prefix_of_ones_own_hides_no_directive_from_qsub(lockstep, run, place):
    env = fake(place.parent, qsub="/usr/bin/env >given; echo 7.x")
    run(lockstep, "submit", "quick.yaml", cwd=place, env={**env, "PBS_DPREFIX": "#ME", "PBS_DEFAULT": "server"}, check=True)
    assert "PBS_DPREFIX" not in given(place) and "PBS_DEFAULT" in given(place)


def test_a_query_hears_no_format_or_filter(lockstep, start, place):
    process = start(lockstep, "submit", "quick.yaml", "--wait", cwd=place, **PIPES,
                    env={**fake(place.parent, sbatch="echo 41", squeue="/usr/bin/env >given; echo '41|RUNNING|None'"),
                         "SQUEUE_STATES": "PENDING", "SQUEUE_FORMAT": "%all", "SACCT_FORMAT": "User", "SLURM_CLUSTERS": "c",
                         "SLURM_CONF": "/x", "SLURM_TIME_FORMAT": "%s"})
    assert process.stdout.readline() == "41\n"
    wait_for(lambda: (place / "given").exists() and "PATH" in given(place), what="squeue")
    over(place)
    assert process.wait(20) == 0
    assert [name for name in given(place) if name.startswith(("SQUEUE_", "SACCT_", "SLURM_"))] == ["SLURM_CONF"]


# ---- what a dry run shows is what runs ------------------------------------------------------------------------


def test_a_dry_run_shows_the_variables_that_are_taken_away(lockstep, run, place):
    shown = run(lockstep, "submit", "quick.yaml", "--scheduler", "slurm", "--dry-run", cwd=place, check=True,
                env={"SBATCH_WAIT": "1", "SBATCH_ACCOUNT": "a"}).stdout
    assert shown.startswith("env -u SBATCH_WAIT sbatch --parsable ")


def test_a_dry_run_shows_the_qsub_that_is_off_the_path(lockstep, run, place):
    folder = place.parent / "pbs"
    env = {**fake(place.parent), "PBS_EXEC": str(folder)}
    (folder / "bin").mkdir(parents=True)
    (folder / "bin/qsub").write_text("#!/bin/sh\necho \"$0 $*\" >asked; echo 7.x\n")
    (folder / "bin/qsub").chmod(0o755)
    shown = run(lockstep, "submit", "quick.yaml", "--dry-run", cwd=place, env=env, check=True).stdout
    assert shown.startswith(f"{folder}/bin/qsub '{place}/runs/.jobs/lockstep-")
    run(lockstep, "submit", "quick.yaml", cwd=place, env=env, check=True)
    assert (place / "asked").read_text().startswith(f"{folder}/bin/qsub {place}/runs/.jobs/lockstep-")


# ---- Ctrl-C -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("words, ids", [((), "41\n"), (("--wait",), "41\n"), (("--chain", 3), "41\n")])
def test_ctrl_c_while_sbatch_runs_still_tells_the_id(words, ids, lockstep, start, place):
    process = start(lockstep, "submit", "quick.yaml", *words, cwd=place, **PIPES,
                    env=fake(place.parent, sbatch="touch asked; while ! [ -e go ]; do sleep 0.05; done; echo 41", squeue="true"))
    wait_for((place / "asked").exists, what="sbatch")
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: sbatch is told, too
    wait_for(lambda: "hearing the job's id first" in process.stderr.readline(), what="the answer")
    (place / "go").touch()
    out, err = process.communicate(timeout=20)
    assert (process.returncode, out) == (130, ids) and "scancel 41" in err, err
    assert ("interrupted: 1 of 3 jobs were submitted" in err) == ("--chain" in words)


def test_a_second_ctrl_c_ends_it(lockstep, start, place):
    process = start(lockstep, "submit", "quick.yaml", cwd=place, **PIPES,
                    env=fake(place.parent, sbatch="touch asked; while ! [ -e go ]; do sleep 0.05; done; echo 41"))
    wait_for((place / "asked").exists, what="sbatch")
    process.send_signal(signal.SIGINT)
    wait_for(lambda: "hearing the job's id first" in process.stderr.readline(), what="the answer")
    process.send_signal(signal.SIGINT)
    assert process.wait(20) == -signal.SIGINT
    (place / "go").touch()


# ---- the scheduler's words ------------------------------------------------------------------------------------


@pytest.mark.parametrize("text, status, what", [
    ("echo 'sbatch: lua: charged to a00' >&2; echo 7", 0, ["charged to a00"]),
    ("echo welcome; echo 'sbatch: error: no' >&2; exit 1", 1, ["welcome", "sbatch: error: no"]),
    ("echo welcome; exit 1", 1, ["refused the job (status 1): welcome"]),
    ("echo 'sbatch: error: no' >&2", 1, ["names no id: sbatch: error: no"])])
def test_its_words_are_passed_on(text, status, what, lockstep, run, place):
    result = run(lockstep, "submit", "quick.yaml", cwd=place, env=fake(place.parent, sbatch=text))
    assert result.returncode == status and all(words in result.stderr for words in what), result.stderr


@pytest.mark.full
def test_a_scheduler_that_stays_silent_is_said_with_its_words(lockstep, start, place):
    process = start(lockstep, "submit", "quick.yaml", "--wait", cwd=place, **PIPES,
                    env=fake(place.parent, sbatch="echo 41", squeue="echo 'Unable to contact slurm controller' >&2; exit 1"))
    wait_for(lambda: "still waiting (squeue left with 1: Unable to contact" in process.stderr.readline(), 90, "the silence")
    over(place)
    assert process.wait(20) == 0


# ---- PBS's log ------------------------------------------------------------------------------------------------


def test_a_log_of_pbs_that_comes_late_is_shown_whole(lockstep, run, place):
    late = "(sleep 5; echo first >lockstep.o7; sleep 0.2; echo last >>lockstep.o7) >/dev/null 2>&1 &"
    env = fake(place.parent, qsub=f"printf 'begin 7.x\\nend 7.x 0 \\n' >\"${{1%.sh}}.record\"; {late} echo 7.x", qstat="exit 1")
    result = run(lockstep, "submit", "quick.yaml", "--wait", cwd=place, env=env, check=True)
    assert result.stdout.splitlines()[:3] == ["7.x", "first", "last"]


# ---- where files lie ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("folder, site_name", [("${PBS_JOBFS}/runs", "gadi"), ("${TMPDIR}/runs", "pbs"), ("a/${PBS_JOBID}", "pbs"),
                                               ("${PBS_O_WORKDIR}/mine", "pbs")])
def test_a_record_lies_where_all_see_it(folder, site_name, lockstep, run, place):
    account = ["--account", "a00"] if site_name == "gadi" else []
    env = {**fake(place.parent, qsub="echo 7.x"), "TMPDIR": str(place.parent / "tmp"), "PBS_JOBFS": str(place.parent / "fs")}
    result = run(lockstep, "submit", "quick.yaml", "--site", site_name, *account, "--set", f"run.dir={folder}", cwd=place, env=env,
                 check=True)
    kept = "mine" if "WORKDIR" in folder else "runs"
    assert [path.name for path in place.iterdir() if path.is_dir()] == [kept] and list((place / kept / ".jobs").glob("*.sh"))
    assert not (place.parent / "tmp").exists() and not (place.parent / "fs").exists()
    assert ("the job alone knows" in result.stderr) == (kept == "runs")


@pytest.mark.parametrize("words", [("submit", "quick.yaml", "--site", "slurm", "--dry-run"), ("render", "slurm", "quick.yaml"),
                                   ("site", "show", "slurm")])
def test_a_site_that_hides_one_that_ships_is_said(words, lockstep, run, place):
    said = run(lockstep, *words, cwd=place, check=True)
    assert f"{SOURCE}/job_scripts/sites/slurm.yaml" in said.output and "which ships" not in said.stderr
    (place / "sites").mkdir()
    (place / "sites/slurm.yaml").write_text("scheduler: slurm\nqueue: mine\n")
    said = run(lockstep, *words, cwd=place, check=True)
    assert f"sites/slurm.yaml counts, not {SOURCE}/job_scripts/sites/slurm.yaml, which ships with lockstep" in said.stderr


# ---- on Slurm -------------------------------------------------------------------------------------------------


@pytest.fixture
def submit(lab, place, lockstep, site):  # noqa: F811
    """submit(WORDS..., env={}) -> a submit --wait that has begun."""
    def begin(*words, env=None):
        process = lab.popen(lockstep, "submit", "quick.yaml", "--scheduler", "slurm", *words, "--wait", cwd=place, stdin=subprocess.DEVNULL, **PIPES,
                            env={"LOCKSTEP_PROGRAM": str(lockstep), "LOCKSTEP_HOME": str(SOURCE), "LOCKSTEP_THREADS_PER_CORE": "1",
                                 **site, **(env or {})})
        started.append(process)
        return process
    started = []
    yield begin
    for process in started:
        if process.poll() is None:
            process.kill()
        process.communicate()


def test_a_users_own_settings_change_nothing_on_slurm(submit, place):
    process = submit("--set", "train.max_steps=4", "--ranks-per-node", 1,
                     env={**{name: value for name, value in UNHEARD.items() if name != "SLURM_JOB_ID"},
                          "SQUEUE_PARTITION": "urgent", "SQUEUE_FORMAT": "%all", "SBATCH_PARTITION": "urgent"})
    out, err = process.communicate(timeout=90)
    assert process.returncode == 0, out + err
    job = out.splitlines()[0]
    assert "restart 0" in out and (place / f"lockstep-{job}.out").exists() and not (place / "x").exists()
    assert len(runs(place)) == 2  # with .jobs


def test_a_task_that_was_cancelled_is_told_with_all_that_is_known(lab, submit, place):  # noqa: F811
    (place / "held.yaml").write_text("scheduler: slurm\ndirectives: [--hold]\n")
    process = submit("--site", "./held.yaml", "--set", "train.max_steps=4", "--ranks-per-node", 1, "--sweep", "run.seed=0..1")
    job = process.stdout.readline().strip()
    lab.run("scancel", f"{job}_1")
    lab.run("scontrol", "release", job)
    out, err = process.communicate(timeout=90)
    assert process.returncode == 1, out + err
    assert f"task {job}_1 (run.seed=1 run.name=quick-seed1): ended without a word: the scheduler says that it is in its array no more. " \
           f"Its log: lockstep-{job}_1.out, which is not there" in out
    assert f"task {job}_0 (run.seed=0 run.name=quick-seed0): done" in out
