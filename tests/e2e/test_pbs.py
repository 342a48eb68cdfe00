"""The PBS scripts, on a stand-in that gives them exactly OpenPBS's environment."""

import shutil

import pytest
from cluster_kit import SOURCE, digests, last_checkpoint, runs
from cluster_kit import reference, site, work  # noqa: F401  (fixtures)
from conftest import run_process
from pbs_kit import SCRIPTS, ended, log_of
from pbs_kit import pbs, qsub, quick_program  # noqa: F401  (fixtures)

pytestmark = pytest.mark.about("job_scripts")


@pytest.mark.parametrize("select, world", [("2:ncpus=1", 2), pytest.param("2:ncpus=2:mpiprocs=2", 4, marks=pytest.mark.full)])
def test_trains_to_the_same_parameters(select, world, pbs, qsub, work, lockstep, reference):  # noqa: F811
    job = qsub("-l", f"select={select}", CONFIG="quick.yaml")
    assert ended(pbs, job) == 0, log_of(work, job)
    assert digests(lockstep, last_checkpoint(runs(work)[0]), run_process) == reference(world, "gloo")


def test_a_file_of_settings_keeps_spaces_commas_and_quotes_below_a_relative_home(pbs, qsub, work):  # noqa: F811
    (work / "home").symlink_to(SOURCE)
    (work / "settings").write_text("# mine\ntrain.max_steps=2\noptim.betas=[0.8, 0.9]\n\nrun.name=it's \"mine\"")
    job = qsub(CONFIG="quick.yaml", SET="@settings", LOCKSTEP_HOME="home")
    assert ended(pbs, job) == 0, log_of(work, job)
    assert runs(work)[0].name == "it's \"mine\""


def test_the_workshops_job_from_its_own_folder(pbs, qsub, tmp_path):
    """cd job_scripts && qsub distributed_data_parallel.pbs, in a tree whose runs are its own."""
    tree = tmp_path / "tree"
    tree.mkdir()
    for name in ("configs", "data"):
        (tree / name).symlink_to(SOURCE / name)
    shutil.copytree(SOURCE / "job_scripts", tree / "job_scripts")
    scripts = tree / "job_scripts"
    job = qsub(script="distributed_data_parallel.pbs", cwd=scripts, LOCKSTEP_HOME="", SET="train.epochs=1")
    assert ended(pbs, job) == 0, log_of(scripts, job)
    assert "Epoch 0 | Average Loss:" in log_of(scripts, job)


@pytest.mark.parametrize("name, ranks", [pytest.param("ddp_single_node.pbs", "2 ranks on 1 node,", marks=pytest.mark.full),
                                         ("ddp_multi_node.pbs", "4 ranks on 2 nodes,")])
def test_the_scripts_of_one_node_and_of_two(name, ranks, pbs, qsub, work, quick_program):  # noqa: F811
    job = qsub(script=str(SCRIPTS / name), LOCKSTEP_PROGRAM=quick_program)
    assert ended(pbs, job) == 0 and ranks in log_of(work, job)


def test_found_by_the_path_that_was_submitted(pbs, work, quick_program, tmp_path):  # noqa: F811
    """No LOCKSTEP_HOME, submitted from elsewhere, a home with spaces in its name; and a task, whose array alone knows the path."""
    home = tmp_path / "a home"
    home.mkdir()
    for name in ("configs", "data", "job_scripts"):
        (home / name).symlink_to(SOURCE / name)
    for array in ((), ("-J", "0-1")):
        job = pbs.run("qsub", "-l", "select=1:ncpus=2:mpiprocs=2", *array, "-v", "LOCKSTEP_PROGRAM,CONFIG",
                      str(home / "job_scripts/ddp.pbs"), cwd=work,
                      env={"LOCKSTEP_PROGRAM": quick_program, "CONFIG": "quick.yaml"}).stdout.strip().replace("[]", "[1]")
        assert ended(pbs, job) == 0, log_of(work, job)
        assert "a home" in log_of(work, job)
