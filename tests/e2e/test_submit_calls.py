"""lockstep submit and the scheduler's commands: what they are told, what they are not, and what becomes of their words."""

import os
import re
import signal

import pytest
from cluster_kit import SOURCE
from cluster_kit import work  # noqa: F401  (fixture)
from process_kit import PATIENCE, line_with, shared_library, wait_for
from submit_kit import AS_RECORDED, HEARD, PIPES, UNHEARD, fake

pytestmark = pytest.mark.about("cluster", "submit")


def over(work):  # noqa: F811
    """The job's script has said that it is done."""
    script, = (work / "runs/.jobs").glob("*.sh")
    script.with_suffix(".record").write_text("begin 41\nend 41 0 \n")


# ---- several clusters ---------------------------------------------------------------------------------------


def test_the_cluster_that_sbatch_names_is_asked(lockstep, start, work):  # noqa: F811
    process = start(lockstep, "submit", "quick.yaml", "--wait", cwd=work, **PIPES,
                    env=fake(work.parent, sbatch="echo '41;east'", squeue="echo \"$*\" >>asked", sacct="echo \"$*\" >>asked"))
    assert line_with(process, process.stdout) == "41"
    wait_for(lambda: (work / "asked").exists() and (work / "asked").read_text().count("\n") >= 2, what="squeue and sacct")
    over(work)
    assert process.wait(PATIENCE) == 0
    assert all("--clusters=east" in line for line in (work / "asked").read_text().splitlines())


def test_a_chain_stays_on_its_cluster_and_is_cancelled_there(lockstep, run, work):  # noqa: F811
    env = fake(work.parent, sbatch="echo \"$*\" >>asked; echo '41;east'")
    result = run(lockstep, "submit", "quick.yaml", "--chain", 2, cwd=work, env=env, check=True)
    first, second = (work / "asked").read_text().splitlines()
    assert "--clusters" not in first and "--parsable --clusters=east " in second
    assert "scancel --clusters=east 41" in result.stderr and "squeue --clusters=east --jobs=41" in result.stderr


# ---- the user's own environment -----------------------------------------------------------------------------


def given(work):  # noqa: F811
    return {line.split("=")[0] for line in (work / "given").read_text().splitlines() if "=" in line}


def test_sbatch_hears_what_is_meant_for_it_alone(lockstep, run, work):  # noqa: F811
    env = fake(work.parent, sbatch="/usr/bin/env >given; echo 7")
    result = run(lockstep, "submit", "quick.yaml", cwd=work, env={**env, **HEARD, **UNHEARD}, check=True)
    assert set(HEARD) <= given(work) and not set(UNHEARD) & given(work)
    said, = [line for line in result.stderr.splitlines() if "not heard for this job" in line]
    assert {name for name in UNHEARD if name.startswith("SBATCH_")} == set(re.findall(r"SBATCH_\w+", said))


def test_what_was_asked_for_counts_before_a_variable(lockstep, run, work):  # noqa: F811
    env = fake(work.parent, sbatch="/usr/bin/env >given; echo 7")
    run(lockstep, "submit", "quick.yaml", "--account", "mine", "--queue", "q", cwd=work, env={**env, **HEARD}, check=True)
    assert set(HEARD) - given(work) == {"SBATCH_ACCOUNT", "SBATCH_PARTITION"}


def test_a_prefix_of_ones_own_hides_no_directive_from_qsub(lockstep, run, work):  # noqa: F811
    env = fake(work.parent, qsub="/usr/bin/env >given; echo 7.x")
    run(lockstep, "submit", "quick.yaml", cwd=work, env={**env, "PBS_DPREFIX": "#ME", "PBS_DEFAULT": "server"}, check=True)
    assert "PBS_DPREFIX" not in given(work) and "PBS_DEFAULT" in given(work)


def test_a_query_hears_no_format_or_filter(lockstep, start, work):  # noqa: F811
    process = start(lockstep, "submit", "quick.yaml", "--wait", cwd=work, **PIPES,
                    env={**fake(work.parent, sbatch="echo 41", squeue="/usr/bin/env >given\n" + AS_RECORDED),
                         "SQUEUE_STATES": "PENDING", "SQUEUE_FORMAT": "%all", "SACCT_FORMAT": "User", "SLURM_CLUSTERS": "c",
                         "SLURM_CONF": "/x", "SLURM_TIME_FORMAT": "%s"})
    assert line_with(process, process.stdout) == "41"
    wait_for(lambda: (work / "given").exists() and "PATH" in given(work), what="squeue")
    over(work)
    assert process.wait(PATIENCE) == 0
    assert [name for name in given(work) if name.startswith(("SQUEUE_", "SACCT_", "SLURM_"))] == ["SLURM_CONF"]


# ---- what a dry run shows is what runs ------------------------------------------------------------------------


def test_a_dry_run_shows_the_variables_that_are_taken_away(lockstep, run, work):  # noqa: F811
    shown = run(lockstep, "submit", "quick.yaml", "--scheduler", "slurm", "--dry-run", cwd=work, check=True,
                env={"SBATCH_WAIT": "1", "SBATCH_ACCOUNT": "a"}).stdout
    assert shown.startswith("env -u SBATCH_WAIT sbatch --parsable ")


def test_a_dry_run_shows_the_qsub_that_is_off_the_path(lockstep, run, work):  # noqa: F811
    folder = work.parent / "pbs"
    env = {**fake(work.parent), "PBS_EXEC": str(folder)}
    (folder / "bin").mkdir(parents=True)
    (folder / "bin/qsub").write_text("#!/bin/sh\necho \"$0 $*\" >asked; echo 7.x\n")
    (folder / "bin/qsub").chmod(0o755)
    shown = run(lockstep, "submit", "quick.yaml", "--dry-run", cwd=work, env=env, check=True).stdout
    assert shown.startswith(f"{folder}/bin/qsub '{work}/runs/.jobs/lockstep-")
    run(lockstep, "submit", "quick.yaml", cwd=work, env=env, check=True)
    assert (work / "asked").read_text().startswith(f"{folder}/bin/qsub {work}/runs/.jobs/lockstep-")


# ---- Ctrl-C, and a terminal that is closed --------------------------------------------------------------------


@pytest.fixture
def begun(lockstep, start, work):  # noqa: F811
    """begun(WORDS...) -> a submit whose sbatch runs until there is a file `go`."""
    def begin(*words, **how):
        sbatch = "touch asked; while ! [ -e go ]; do sleep 0.05; done; echo 41"
        process = start(lockstep, "submit", "quick.yaml", *words, cwd=work, **PIPES, **how,
                        env=fake(work.parent, sbatch=sbatch, squeue="true"))
        wait_for((work / "asked").exists, what="sbatch")
        return process
    return begin


@pytest.mark.parametrize("words, signals", [
    ((), [signal.SIGINT]), (("--wait",), [signal.SIGINT]), (("--chain", 3), [signal.SIGINT]),
    (("--wait",), [signal.SIGHUP, signal.SIGHUP])])  # of a closed terminal: its shell's and the kernel's
def test_an_interrupt_while_sbatch_runs_still_tells_the_id(words, signals, begun, work):  # noqa: F811
    process = begun(*words)
    for number in signals:
        os.killpg(process.pid, number)  # as a terminal does: sbatch is told, too
        line_with(process, process.stderr, "hearing the job's id first")
    (work / "go").touch()
    out, err = process.communicate(timeout=PATIENCE)
    assert (process.returncode, out) == (130, "41\n") and "scancel 41" in err, err
    assert ("interrupted: 1 of 3 jobs were submitted" in err) == ("--chain" in words)


def test_a_closed_terminal_is_nothing_under_nohup(begun, work):  # noqa: F811
    process = begun(preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
    os.killpg(process.pid, signal.SIGHUP)
    (work / "go").touch()
    out, err = process.communicate(timeout=PATIENCE)
    assert (process.returncode, out) == (0, "41\n") and "hearing" not in err, err


def test_a_second_ctrl_c_ends_it(begun, work):  # noqa: F811
    process = begun()
    process.send_signal(signal.SIGINT)
    line_with(process, process.stderr, "hearing the job's id first")
    process.send_signal(signal.SIGINT)
    assert process.wait(PATIENCE) == -signal.SIGINT
    (work / "go").touch()


# ---- the scheduler's words ------------------------------------------------------------------------------------


@pytest.mark.parametrize("text, status, what", [
    ("echo 'sbatch: lua: charged to a00' >&2; echo 7", 0, ["charged to a00"]),
    ("echo welcome; echo 'sbatch: error: no' >&2; exit 1", 1, ["welcome", "sbatch: error: no"]),
    ("echo welcome; exit 1", 1, ["refused the job (status 1): welcome"]),
    ("echo 'sbatch: error: no' >&2", 1, ["names no id: sbatch: error: no"])])
def test_its_words_are_passed_on(text, status, what, lockstep, run, work):  # noqa: F811
    result = run(lockstep, "submit", "quick.yaml", cwd=work, env=fake(work.parent, sbatch=text))
    assert result.returncode == status and all(words in result.stderr for words in what), result.stderr


def test_a_banner_is_no_id(lockstep, run, work):  # noqa: F811
    (work / "banner").write_text("2026-11-23\n100%\n7th_floor\n41:30\n3 jobs queue here\n")
    for job in ("7", "7;east", "7.server", "7[].server"):
        env = fake(work.parent, sbatch=f"echo '{job}'; cat banner")
        result = run(lockstep, "submit", "quick.yaml", cwd=work, env=env, check=True)
        assert result.stdout == job.removesuffix(";east") + "\n"
    result = run(lockstep, "submit", "quick.yaml", cwd=work, env=fake(work.parent, sbatch="cat banner"))
    assert (result.returncode, result.stdout) == (1, "") and "names no id: 2026-11-23" in result.stderr


@pytest.mark.full
def test_a_scheduler_that_stays_silent_is_said_with_its_words(lockstep, start, work):  # noqa: F811
    process = start(lockstep, "submit", "quick.yaml", "--wait", cwd=work, **PIPES,
                    env=fake(work.parent, sbatch="echo 41", squeue="echo 'Unable to contact slurm controller' >&2; exit 1"))
    line_with(process, process.stderr, "still waiting (squeue left with 1: Unable to contact")
    over(work)
    assert process.wait(PATIENCE) == 0


# ---- PBS's log ------------------------------------------------------------------------------------------------


# The log comes late and grows by a line whenever submit rests between two looks, however slow the machine is.
COPYING = """
#include <stdio.h>
#include <time.h>
int nanosleep(const struct timespec *rest, struct timespec *left) {
  static int looks = 0;
  if (++looks > 10 && looks <= 15) {
    FILE *log = fopen("lockstep.o7", "a");
    fprintf(log, "line %d\\n", looks - 10);
    fclose(log);
  }
  return clock_nanosleep(CLOCK_REALTIME, 0, rest, left);
}
"""


def test_a_log_of_pbs_that_comes_late_and_grows_is_shown_whole(lockstep, run, work):  # noqa: F811
    env = {**fake(work.parent, qsub="printf 'begin 7.x\\nend 7.x 0 \\n' >\"${1%.sh}.record\"; echo 7.x",
                  qstat="echo 'qstat: Unknown Job Id' >&2; exit 153"),
           "LD_PRELOAD": shared_library(work.parent, "copying.so", COPYING)}
    result = run(lockstep, "submit", "quick.yaml", "--wait", cwd=work, env=env, check=True)
    assert result.stdout.splitlines()[:6] == ["7.x"] + [f"line {number}" for number in range(1, 6)]


# ---- where files lie ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("folder, site_name", [("${PBS_JOBFS}/runs", "gadi"), ("${TMPDIR}/runs", "pbs"), ("a/${PBS_JOBID}", "pbs"),
                                               ("${PBS_O_WORKDIR}/mine", "pbs")])
def test_a_record_lies_where_all_see_it(folder, site_name, lockstep, run, work):  # noqa: F811
    account = ["--account", "a00"] if site_name == "gadi" else []
    env = {**fake(work.parent, qsub="echo 7.x"), "TMPDIR": str(work.parent / "tmp"), "PBS_JOBFS": str(work.parent / "fs")}
    result = run(lockstep, "submit", "quick.yaml", "--site", site_name, *account, "--set", f"run.dir={folder}", cwd=work, env=env,
                 check=True)
    kept = "mine" if "WORKDIR" in folder else "runs"
    assert [path.name for path in work.iterdir() if path.is_dir()] == [kept] and list((work / kept / ".jobs").glob("*.sh"))
    assert not (work.parent / "tmp").exists() and not (work.parent / "fs").exists()
    assert ("the job alone knows" in result.stderr) == (kept == "runs")


@pytest.mark.parametrize("words", [("submit", "quick.yaml", "--site", "slurm", "--dry-run"), ("render", "slurm", "quick.yaml"),
                                   ("site", "show", "slurm")])
def test_a_site_that_hides_one_that_ships_is_said(words, lockstep, run, work):  # noqa: F811
    said = run(lockstep, *words, cwd=work, check=True)
    assert f"{SOURCE}/job_scripts/sites/slurm.yaml" in said.output and "which ships" not in said.stderr
    (work / "sites").mkdir()
    (work / "sites/slurm.yaml").write_text("scheduler: slurm\nqueue: mine\n")
    said = run(lockstep, *words, cwd=work, check=True)
    assert f"sites/slurm.yaml counts, not {SOURCE}/job_scripts/sites/slurm.yaml, which ships with lockstep" in said.stderr


# ---- a scheduler that says nothing ------------------------------------------------------------------------------


@pytest.mark.parametrize("words", [("chain.sh", "2", "ddp.slurm"), ("chain.sh", "2", "ddp.pbs"), ("train_then_eval.sh", "ddp.slurm"),
                                   ("train_then_eval.sh", "ddp.pbs")])
def test_the_scripts_that_submit_give_a_mute_scheduler_its_time(words, run, work):  # noqa: F811
    name, *rest, script = words
    mute = "cat >/dev/null; exec sleep 3600"
    env = fake(work.parent, sbatch=mute, qsub=mute, timeout='[ "$1 $2 $3 $4" = "--foreground -k 10 120" ] && shift 4 && exec /usr/bin/timeout 1 "$@"')
    done = run(SOURCE / "job_scripts" / name, *rest, SOURCE / "job_scripts" / script, cwd=work,
               env={"PATH": f"{env['PATH']}:{os.environ['PATH']}"})
    assert done.returncode and "has not answered within 2 minutes" in done.stderr, done.output
