"""lockstep submit before a scheduler's stand-ins: what it writes, refuses and says, and how it waits."""

import signal

import pytest
from process_kit import PATIENCE, line_with
from submit_kit import PIPES, fake, work  # noqa: F401  (a fixture among them)

pytestmark = pytest.mark.about("cluster", "submit", "cli")


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
    said = ("job 2 of 2 was not submitted", "scancel 41 --clusters=cluster", "too many jobs")
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
    over = "job=${2##*/}; printf 'begin 7\\nend 7 2 \\n' >runs/.jobs/${job%.sh}.record; echo 7"
    result = run(lockstep, "submit", "quick.yaml", "--wait", cwd=work, env=fake(work.parent, sbatch=over, squeue="echo '7|COMPLETED|None'"))
    assert result.returncode == 2 and "without creating a run; see lockstep-7.out" in result.stdout, result.output


def test_a_chain_ends_as_its_last_link_that_ran(lockstep, run, work):  # noqa: F811
    """The first link stops early; the second is over before it begins a run."""
    over = """script=${2##*/}; script=runs/.jobs/${script%.sh}; link=${script##*.}; end='75 runs/x'; [ $link = 1 ] || end=1; : >lockstep-$link.out
              echo "begin $link\nend $link $end" >"$script.record"; echo $link"""
    result = run(lockstep, "submit", "quick.yaml", "--chain", 2, "--wait", cwd=work,
                 env=fake(work.parent, sbatch=over, squeue="echo '1|COMPLETED|None'; echo '2|COMPLETED|None'"))
    assert result.returncode == 75 and "chain job 2 of 2" in result.stderr, result.output


def test_a_sweep_fails_where_its_tasks_end_unlike(lockstep, run, work):  # noqa: F811
    over = """job=${2##*/}; for task in 0 1; do echo "begin 7_$task\nend 7_$task $task" >runs/.jobs/${job%.sh}.record.$task; done; echo 7"""
    result = run(lockstep, "submit", "quick.yaml", "--sweep", "optim.lr=0.1,0.2", "--wait", cwd=work,
                 env=fake(work.parent, sbatch=over, squeue="echo '7_0|COMPLETED|None'; echo '7_1|FAILED|None'"))
    assert result.returncode == 1 and "task 7_1 " in result.stdout, result.output
