"""The PBS scripts: on a stand-in that gives them exactly OpenPBS's environment, and through Slurm's own qsub."""

import shutil

import pytest
from cluster_kit import SOURCE, digests, last_checkpoint, runs, start_lab, wait_until_done
from cluster_kit import across, reference, site, work  # noqa: F401  (fixtures)
from conftest import run_process
from pbs_kit import DDP, IN_A_JOB, SCRIPTS, ended, log_of
from pbs_kit import pbs, qsub, quick_program  # noqa: F401  (fixtures)

pytestmark = pytest.mark.about("job_scripts")


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
    assert digests(lockstep, last_checkpoint(runs(work)[0]), run_process) == reference(world, "gloo")


def test_ranks_that_share_layers_over_two_nodes(pbs, qsub, work, lockstep, reference):  # noqa: F811
    grid = ("model.name=mlp", "parallel.tensor=2")
    job = qsub("-l", "select=2:ncpus=2:mpiprocs=2", CONFIG="quick.yaml", SET=" ".join(grid))
    assert ended(pbs, job) == 0, log_of(work, job)
    sets = [word for setting in grid for word in ("--set", setting)]
    assert digests(lockstep, last_checkpoint(runs(work)[0]), run_process) == reference(4, "gloo", *sets)


def test_a_file_of_settings_keeps_spaces_commas_and_quotes(pbs, qsub, work):  # noqa: F811
    (work / "settings").write_text("# mine\ntrain.max_steps=2\noptim.betas=[0.8, 0.9]\n\nrun.name=it's \"mine\"")
    job = qsub(CONFIG="quick.yaml", SET="@settings")
    assert ended(pbs, job) == 0, log_of(work, job)
    assert runs(work)[0].name == "it's \"mine\""


@pytest.mark.parametrize("value", ["run.name='with spaces'", "run.name=bob's optim.lr=0.5", 'a="b"'])
def test_quotes_that_qsub_took_are_said(value, pbs, qsub, work):  # noqa: F811
    job = qsub(CONFIG="quick.yaml", SET=value)
    assert ended(pbs, job) == 2
    assert "quotes into backslashes" in log_of(work, job) and "SET=@FILE" in log_of(work, job)
    assert not (work / "runs").exists()


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
        assert ended(pbs, job.replace("[]", f"[{index}]")) == 0
    assert len(runs(work)) == 4


@pytest.mark.parametrize("select, ranks, cores", [
    ("1:ncpus=8:mpiprocs=2", 2, 4), ("1:ncpus=8:mpiprocs=1", 1, 8), ("2:ncpus=2", 2, 2), ("2:ncpus=4:ngpus=4", 8, 1)])
def test_ranks_get_their_share_of_the_cores(select, ranks, cores, pbs, qsub, work, quick_program):  # noqa: F811
    job = qsub("-l", f"select={select}", LOCKSTEP_PROGRAM=quick_program, LOCKSTEP_THREADS_PER_CORE="1")
    ended(pbs, job)  # whatever mpirun says to more cores than this machine has
    assert f"{ranks} ranks on 1 node(s), {cores} core(s) a rank" in log_of(work, job)


@pytest.mark.parametrize("name, value", [("SET", "@no-such-file"), ("LOCKSTEP_MAX_RESTARTS", "ten"),
                                         ("LOCKSTEP_RANKS_PER_NODE", "0"), ("LOCKSTEP_ON_TERM", "go")])
def test_wrong_words_are_refused_before_anything_runs(name, value, pbs, qsub, work):  # noqa: F811
    job = qsub(**{"CONFIG": "quick.yaml", name: value})
    assert ended(pbs, job) == 2
    assert f"{name}={value}" in log_of(work, job) and not (work / "runs").exists()


def test_a_relative_home(pbs, qsub, work):  # noqa: F811
    (work / "home").symlink_to(SOURCE)
    assert ended(pbs, qsub(CONFIG="quick.yaml", LOCKSTEP_HOME="home", SET="train.max_steps=2")) == 0


def test_what_pbs_refuses_is_not_asked_of_it_again(run):
    """Sums over chunks beside select, the queue behind a route, a name that the file had given."""
    record = """Job Id: 1.x
    Job_Name = my script, 2.pbs
    queue = behind
    Keep_Files = n
    Output_Path = login:/a/my script, 2.pbs.o1
    Rerunable = False
    Resource_List.mem = 4gb
    Resource_List.ncpus = 8
    Resource_List.ngpus = 2
    Resource_List.nodect = 2
    Resource_List.nodes = 2:ppn=4
    Resource_List.place = scatter:excl
    Resource_List.select = 2:ncpus=4:mem=2gb
    Resource_List.storage = gdata/a+scratch/b
    project = _pbs_project_default
    schedselect = 2:ncpus=4:mem=2gb:ngpus=1"""
    words = run("bash", "-c", IN_A_JOB + "pbs_options; printf '%s\\n' \"${OPTIONS[@]}\"", check=True,
                env={"RECORD": record, "PBS_O_QUEUE": "front"}).stdout.splitlines()
    assert words == ["-N", "my_script__2.pbs", "-k", "n", "-r", "n", "-q", "front", "-l", "place=scatter:excl",
                     "-l", "select=2:ncpus=4:mem=2gb", "-l", "storage=gdata/a+scratch/b"]


def test_a_sweep_has_no_more_tasks_than_values(pbs, qsub, work):  # noqa: F811
    job = qsub("-J", "3-4", script=str(SCRIPTS / "sweep.pbs"), CONFIG="no-such.yaml")
    beyond = job.replace("[]", "[4]")
    assert ended(pbs, beyond) == 2 and "PBS_ARRAY_INDEX=4: this sweep has the tasks 0-3" in log_of(work, beyond)


@pytest.mark.parametrize("name, ranks", [("ddp_single_node.pbs", "2 ranks on 1 node(s)"),
                                         ("ddp_multi_node.pbs", "4 ranks on 2 node(s)")])
def test_the_scripts_of_one_node_and_of_two(name, ranks, pbs, qsub, work, quick_program):  # noqa: F811
    job = qsub(script=str(SCRIPTS / name), LOCKSTEP_PROGRAM=quick_program)
    assert ended(pbs, job) == 0 and ranks in log_of(work, job)


def test_a_script_that_was_copied_says_so_in_one_line(pbs, work):  # noqa: F811
    shutil.copy(DDP, work)
    job = pbs.run("qsub", "ddp.pbs", cwd=work).stdout.strip()
    assert ended(pbs, job) == 2
    assert len(log_of(work, job).splitlines()) == 1 and "LOCKSTEP_HOME" in log_of(work, job)


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


def test_a_bench_measures_on_what_the_job_was_given(pbs, qsub, work):  # noqa: F811
    job = qsub(script=str(SCRIPTS / "bench.pbs"), BENCH="allreduce --algorithm tree --sizes 1K --rounds 1 --out tree.html")
    assert ended(pbs, job) == 0, log_of(work, job)
    assert "every sum was checked" in log_of(work, job), log_of(work, job)
    assert "<svg" in (work / "tree.html").read_text()
