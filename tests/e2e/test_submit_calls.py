"""lockstep submit and the scheduler's commands: what they are told, what they are not, and what becomes of their words."""

import os
import re
import signal

import pytest
from cluster_kit import work  # noqa: F401  (fixture)
from process_kit import PATIENCE, executable, line_with, wait_for
from submit_kit import HEARD, PIPES, UNHEARD, fake

pytestmark = pytest.mark.about("cluster", "submit")


def over(work):  # noqa: F811
    """The job's script has said that it is done."""
    script, = (work / "runs/.jobs").glob("*.sh")
    script.with_suffix(".record").write_text("begin 41\nend 41 0 \n")


def given(work):  # noqa: F811
    return {line.split("=")[0] for line in (work / "given").read_text().splitlines() if "=" in line}


def test_sbatch_hears_what_is_meant_for_it_alone(lockstep, run, work):  # noqa: F811
    env = fake(work.parent, sbatch="/usr/bin/env >given; echo 7")
    result = run(lockstep, "submit", "quick.yaml", cwd=work, env={**env, **HEARD, **UNHEARD}, check=True)
    assert set(HEARD) <= given(work) and not set(UNHEARD) & given(work)
    said, = [line for line in result.stderr.splitlines() if "ignored for this job" in line]
    assert {name for name in UNHEARD if name.startswith("SBATCH_")} == set(re.findall(r"SBATCH_\w+", said))
    shown = run(lockstep, "submit", "quick.yaml", "--dry-run", cwd=work, env={**env, "SBATCH_WAIT": "1", "SBATCH_ACCOUNT": "a"},
                check=True).stdout
    assert shown.startswith("env -u SBATCH_ACCOUNT -u SBATCH_WAIT sbatch --parsable ") and "#SBATCH --account=a\n" in shown


def test_a_prefix_of_ones_own_hides_no_directive_from_qsub(lockstep, run, work):  # noqa: F811
    env = fake(work.parent, qsub="/usr/bin/env >given; echo 7.x")
    run(lockstep, "submit", "quick.yaml", cwd=work, env={**env, "PBS_DPREFIX": "#ME", "PBS_DEFAULT": "server"}, check=True)
    assert "PBS_DPREFIX" not in given(work) and "PBS_DEFAULT" in given(work)


def test_the_cluster_that_sbatch_names_is_asked_and_hears_no_format_or_filter(lockstep, start, work):  # noqa: F811
    process = start(lockstep, "submit", "quick.yaml", "--wait", cwd=work, **PIPES,
                    env={**fake(work.parent, sbatch="echo '41;east'", squeue="/usr/bin/env >given; echo \"$*\" >>asked"),
                         "SQUEUE_STATES": "PENDING", "SQUEUE_FORMAT": "%all", "SLURM_CLUSTERS": "c",
                         "SLURM_CONF": "/x", "SLURM_TIME_FORMAT": "%s"})
    assert line_with(process, process.stdout) == "41"
    wait_for((work / "asked").exists, what="squeue")
    over(work)
    assert process.wait(PATIENCE) == 0
    assert all("--clusters=east" in line for line in (work / "asked").read_text().splitlines())
    assert [name for name in given(work) if name.startswith(("SQUEUE_", "SLURM_"))] == ["SLURM_CONF"]


def test_a_dry_run_shows_the_qsub_that_is_off_the_path(lockstep, run, work):  # noqa: F811
    folder = work.parent / "pbs"
    env = {**fake(work.parent), "PBS_EXEC": str(folder)}
    (folder / "bin").mkdir(parents=True)
    executable(folder / "bin/qsub", "#!/bin/sh\necho \"$0 $*\" >asked; echo 7.x\n")
    shown = run(lockstep, "submit", "quick.yaml", "--dry-run", cwd=work, env=env, check=True).stdout
    assert shown.startswith(f"{folder}/bin/qsub $'{work}/runs/.jobs/lockstep-")
    run(lockstep, "submit", "quick.yaml", cwd=work, env=env, check=True)
    assert re.fullmatch(rf"{folder}/bin/qsub (?!{work}).*/lockstep-.*\.sh\n", (work / "asked").read_text())


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


@pytest.mark.parametrize("words, number", [(("--chain", 3), signal.SIGINT), (("--wait",), signal.SIGHUP)])
def test_an_interrupt_while_sbatch_runs_still_prints_the_id(words, number, begun, work):  # noqa: F811
    process = begun(*words)
    os.killpg(process.pid, number)  # as a terminal does
    (work / "go").touch()
    out, err = process.communicate(timeout=PATIENCE)
    assert (process.returncode, out) == (-number, "41\n") and "scancel 41" in err, err


def test_its_words_are_passed_on(lockstep, run, work):  # noqa: F811
    for text, status, what in (("echo 'sbatch: lua: charged to a00' >&2; echo 7", 0, ["charged to a00"]),
                               ("echo welcome; echo 'Unable to contact slurm controller' >&2; exit 1", 1, ["welcome", "Unable", "try again"]),
                               ("echo 'sbatch: error: no' >&2", 1, ["printed no id: sbatch: error: no"]),
                               ("kill -9 $$", 1, ["status 137"])):
        result = run(lockstep, "submit", "quick.yaml", cwd=work, env=fake(work.parent, sbatch=text))
        assert result.returncode == status and all(words in result.stderr for words in what), result.stderr


def test_a_banner_is_no_id(lockstep, run, work):  # noqa: F811
    (work / "banner").write_text("2026-11-23\n100%\n7th_floor\n41:30\n3 jobs queue here\n")
    for job in ("7;east", "7[].server"):
        env = fake(work.parent, sbatch=f"cat banner; echo '{job}'")
        result = run(lockstep, "submit", "quick.yaml", cwd=work, env=env, check=True)
        assert result.stdout == job.removesuffix(";east") + "\n"
    result = run(lockstep, "submit", "quick.yaml", cwd=work, env=fake(work.parent, sbatch="cat banner"))
    assert (result.returncode, result.stdout) == (1, "") and "printed no id: 2026-11-23" in result.stderr
