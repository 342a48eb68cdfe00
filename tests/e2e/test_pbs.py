"""The PBS scripts: on a stand-in that gives them exactly OpenPBS's environment, and through Slurm's own qsub."""

import shutil

import pytest
from cluster_kit import (QUICK, SOURCE, digests, last_checkpoint, metrics, runs, start_lab, steps_logged, wait_for,
                         wait_until_done)
from cluster_kit import across, site, work  # noqa: F401  (fixtures)
from conftest import run_process

DDP = str(SOURCE / "job_scripts/ddp.pbs")


@pytest.fixture(scope="module")
def pbs(tmp_path_factory):
    lab = start_lab(tmp_path_factory.mktemp("pbs") / "lab", "pbs")
    yield lab
    lab.stop()


def fields(lab, job):
    """qstat -f of a job as a dict, its wrapped lines joined."""
    text = lab.run("qstat", "-x", "-f", job).stdout.replace("\n\t", "")
    return dict(line.strip().split(" = ", 1) for line in text.splitlines() if " = " in line)


def ended(lab, job, within=90):
    wait_for(lambda: fields(lab, job)["job_state"] == "F", within, f"job {job} to end")
    return int(fields(lab, job)["Exit_status"])


def log_of(work, job, name="lockstep"):  # noqa: F811
    return (work / f"{name}.o{job.split('.')[0]}").read_text()


@pytest.fixture
def qsub(pbs, work, site, lockstep):  # noqa: F811
    """qsub(ARG..., **variables) -> job id, from the folder of submission."""
    def submit(*arguments, script=DDP, cwd=None, **variables):
        variables = {"LOCKSTEP_PROGRAM": str(lockstep), "LOCKSTEP_HOME": str(SOURCE), **site, **variables}
        return pbs.run("qsub", *arguments, "-v", ",".join(variables), script, cwd=cwd or work,
                       env=variables).stdout.strip()
    return submit


@pytest.fixture(scope="module")
def reference(lockstep, mpiexec, tmp_path_factory):
    """reference(world, *sets): digests of the same training without PBS."""
    def train(world, *sets):
        folder = tmp_path_factory.mktemp("reference")
        (folder / "quick.yaml").write_text(QUICK)
        run_process([mpiexec, "-n", world, lockstep, "train", "quick.yaml", *sets], cwd=folder,
                    env={"LOCKSTEP_HOME": str(SOURCE)}, timeout=120, check=True)
        return digests(lockstep, last_checkpoint(runs(folder)[0]), run_process)
    return train


@pytest.mark.mpi
@pytest.mark.parametrize("select, world", [("1:ncpus=2:mpiprocs=2", 2), ("2:ncpus=2:mpiprocs=2", 4), ("2:ncpus=1", 2)])
def test_trains_to_the_same_parameters(select, world, pbs, qsub, across, work, lockstep, reference):  # noqa: F811
    more = across(int(select[0]))
    job = qsub("-l", f"select={select}", CONFIG="quick.yaml", **more)
    if more:
        wait_until_done(work)
        pbs.run("qsig", "-s", "KILL", job, check=False)
    else:
        assert ended(pbs, job) == 0, log_of(work, job)
    assert digests(lockstep, last_checkpoint(runs(work)[0]), run_process) == reference(world)


def test_set_keeps_spaces_commas_and_quotes(pbs, qsub, work):  # noqa: F811
    job = qsub(CONFIG="quick.yaml", SET="train.max_steps=2 'optim.betas=[0.8, 0.9]' run.name=\"it's mine\"")
    assert ended(pbs, job) == 0, log_of(work, job)
    assert runs(work)[0].name == "it's mine"


@pytest.mark.mpi
def test_the_walltime_stops_it_early_and_a_fresh_qsub_goes_on(pbs, qsub, work, lockstep, reference):  # noqa: F811
    sets = "train.max_steps=700 checkpoint.before_deadline=14s"
    job = qsub("-l", "walltime=00:00:20", CONFIG="quick.yaml", SET=sets)
    assert ended(pbs, job, within=40) == 75, log_of(work, job)
    assert "restart 1 of at most 10" in log_of(work, job)
    number = int(job.split(".")[0])
    while (status := ended(pbs, f"{number + 1}.lab")) == 75:
        number += 1
    assert status == 0
    assert len(runs(work)) == 1
    assert digests(lockstep, last_checkpoint(runs(work)[0]), run_process) == reference(2, "--set", "train.max_steps=700")


@pytest.mark.mpi
def test_a_signal_stops_early_bounded(pbs, qsub, work):  # noqa: F811
    job = qsub(CONFIG="quick.yaml", SET="train.max_steps=250", LOCKSTEP_MAX_RESTARTS="0")
    wait_for(lambda: steps_logged(work) >= 6, what="the first steps")
    pbs.run("qsig", "-s", "USR1", job)
    assert ended(pbs, job) == 75, log_of(work, job)


@pytest.mark.mpi
def test_a_job_that_fails_at_once_is_not_tried_again(pbs, qsub, work):  # noqa: F811
    job = qsub(CONFIG="no-such.yaml")
    assert ended(pbs, job) == 2
    assert "no-such.yaml" in log_of(work, job)
    after = pbs.run("qstat", "-f", f"{int(job.split('.')[0]) + 1}.lab", check=False)
    assert "Unknown Job Id" in after.stderr


def test_the_workshops_job_from_its_own_folder(pbs, qsub, tmp_path):
    """cd job_scripts && qsub distributed_data_parallel.pbs, in a tree whose runs are its own."""
    tree = tmp_path / "tree"
    tree.mkdir()
    for name in ("configs", "data"):
        (tree / name).symlink_to(SOURCE / name)
    shutil.copytree(SOURCE / "job_scripts", tree / "job_scripts")
    scripts = tree / "job_scripts"
    job = qsub(script="distributed_data_parallel.pbs", cwd=scripts, LOCKSTEP_HOME="", SET="train.epochs=2")
    assert ended(pbs, job) == 0, log_of(scripts, job)
    assert "Epoch 1 | Average Loss:" in log_of(scripts, job)


def test_sweep_makes_a_run_of_each_task(pbs, qsub, work):  # noqa: F811
    job = qsub(script=str(SOURCE / "job_scripts/sweep.pbs"), CONFIG="quick.yaml")
    for index in range(4):
        assert ended(pbs, job.replace("[]", f"[{index}]"), within=120) == 0
    assert len(runs(work)) == 4


def test_a_task_of_an_array_goes_on_alone(pbs, qsub, work):  # noqa: F811
    """Its fresh qsub is one job with the task's own settings, not the array again."""
    job = qsub("-J", "2-3", script=str(SOURCE / "job_scripts/sweep.pbs"), CONFIG="quick.yaml",
               SET="train.max_steps=250 checkpoint.every_steps=5")
    number = int(job.split("[")[0])
    wait_for(lambda: (work / "runs").is_dir() and len(runs(work)) == 2 and steps_logged(work) >= 6, what="both tasks")
    pbs.run("qsig", "-s", "USR1", f"{number}[3].lab")
    assert [ended(pbs, f"{number}[{task}].lab") for task in (2, 3)] == [0, 75]
    assert ended(pbs, f"{number + 1}.lab") == 0
    assert {r.name for r in runs(work)} == {"sweep-lr0.01", "sweep-lr0.003"}
    assert all(metrics(r)[-1]["step"] == 250 for r in runs(work))


@pytest.mark.parametrize("select, ranks, cores", [("1:ncpus=8:mpiprocs=2", 2, 4), ("1:ncpus=8:mpiprocs=1", 1, 8)])
def test_ranks_get_their_share_of_the_cores(select, ranks, cores, pbs, qsub, work):  # noqa: F811
    job = qsub("-l", f"select={select}", CONFIG="quick.yaml", SET="train.max_steps=2", LOCKSTEP_MAX_RESTARTS="0")
    ended(pbs, job)
    assert f"{ranks} ranks on 1 node(s), {cores} core(s) a rank" in log_of(work, job)


@pytest.mark.parametrize("name, value", [("SET", "run.name=bob's optim.lr=0.5"), ("LOCKSTEP_MAX_RESTARTS", "ten"),
                                         ("LOCKSTEP_RANKS_PER_NODE", "0")])
def test_wrong_words_are_refused_before_anything_runs(name, value, pbs, qsub, work):  # noqa: F811
    job = qsub(**{"CONFIG": "quick.yaml", name: value})
    assert ended(pbs, job) == 2
    assert f"{name}={value}" in log_of(work, job) and not (work / "runs").exists()


def test_a_relative_home(pbs, qsub, work):  # noqa: F811
    (work / "home").symlink_to(SOURCE)
    assert ended(pbs, qsub(CONFIG="quick.yaml", LOCKSTEP_HOME="home", SET="train.max_steps=2")) == 0


def test_train_then_eval(pbs, work, lockstep):  # noqa: F811
    environment = {"LOCKSTEP_PROGRAM": str(lockstep), "LOCKSTEP_HOME": str(SOURCE), "CONFIG": "quick.yaml"}
    done = pbs.run(str(SOURCE / "job_scripts/train_then_eval.sh"), DDP, cwd=work, env=environment)
    then = done.stdout.split()[-1]
    assert ended(pbs, then, within=120) == 0, log_of(work, then)
    assert "accuracy" in log_of(work, then).lower()


def test_chain_goes_on_where_a_link_stopped(pbs, work, lockstep, reference):  # noqa: F811
    environment = {"LOCKSTEP_PROGRAM": str(lockstep), "LOCKSTEP_HOME": str(SOURCE), "CONFIG": "quick.yaml",
                   "SET": "train.max_steps=250 checkpoint.every_steps=5"}
    done = pbs.run(str(SOURCE / "job_scripts/chain.sh"), "2", "-l", "walltime=00:10:00", DDP, cwd=work, env=environment)
    first, second = (line.split()[-1] for line in done.stdout.splitlines())
    wait_for(lambda: steps_logged(work) >= 6, what="the first link's steps")
    pbs.run("qsig", "-s", "USR1", first)
    assert ended(pbs, first) == 75, log_of(work, first)
    assert ended(pbs, second) == 0, log_of(work, second)
    assert digests(lockstep, last_checkpoint(runs(work)[0]), run_process) == reference(2, "--set", "train.max_steps=250")


def test_found_by_the_path_that_was_submitted(pbs, work, lockstep, tmp_path):  # noqa: F811
    """No LOCKSTEP_HOME, submitted from elsewhere, a home with spaces in its name."""
    home = tmp_path / "a home"
    home.mkdir()
    for name in ("configs", "data", "job_scripts"):
        (home / name).symlink_to(SOURCE / name)
    job = pbs.run("qsub", "-l", "select=1:ncpus=2:mpiprocs=2", "-v", "LOCKSTEP_PROGRAM,CONFIG",
                  str(home / "job_scripts/ddp.pbs"), cwd=work,
                  env={"LOCKSTEP_PROGRAM": str(lockstep), "CONFIG": "quick.yaml"}).stdout.strip()
    assert ended(pbs, job) == 0, log_of(work, job)
    assert "a home" in log_of(work, job)


def test_slurms_own_qsub(tmp_path_factory, work, lockstep):  # noqa: F811
    """Debian's slurm-wlm-torque translates a good part of #PBS to Slurm: the script trains there as well."""
    if not shutil.which("qsub"):
        pytest.skip("slurm-wlm-torque is not installed")
    lab = start_lab(tmp_path_factory.mktemp("torque") / "lab", "slurm")
    try:
        done = lab.run("qsub", DDP, cwd=work, env={"LOCKSTEP_PROGRAM": str(lockstep), "LOCKSTEP_HOME": str(SOURCE),
                                                   "CONFIG": "quick.yaml"})
        job = done.stdout.split()[-1].split(".")[0]
        state = lab.wait(job)
        assert state["JobState"] == "COMPLETED", (work / state["StdOut"]).read_text()
    finally:
        lab.stop()
    assert len(runs(work)) == 1
