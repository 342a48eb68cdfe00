"""The two commands: quick when there is nothing to do, polite on a login node, clear about what is missing."""

import os
import pathlib
import re
import shutil
import subprocess
import tempfile

import pytest

from conftest import LOOPBACK, OPEN_MPI, SOURCE, end_session, listens_on, members, start_process
from process_kit import LONG_PATIENCE, executable, wait_for

pytestmark = pytest.mark.about("scripts", "cmake")


@pytest.fixture
def ready(build_dir):
    if build_dir != SOURCE / "build/release":
        pytest.skip("the scripts use build/release")


def fake(folder, name, text):
    executable(folder / name, "#!/bin/bash\n" + text)


def test_on_a_login_node_it_prints_the_command_that_brings_the_settings_to_a_job(ready, run, tmp_path):
    fake(tmp_path, "qsub", "")
    path = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    words = ["--set", "optim.betas=[0.8, 0.9]", "--set", "run.name=it's \"mine\""]
    said = run(SOURCE / "scripts/run", "configs/pima.yaml", *words, "--resume", "auto", cwd=tmp_path, env=path, timeout=LONG_PATIENCE, check=True).stderr
    line = said.split("a batch job:")[1].splitlines()[0]
    script = run("bash", "-ec", f"{line} --dry-run", cwd=tmp_path, env=path, check=True).stdout
    assert "#PBS" in script and re.search(r"job train configs/pima.yaml .*optim.betas=\[0.8, 0.9\].*run.name=it.?'s \"mine\"", script)


def test_ranks_of_a_run_listen_on_the_loopback_alone(ready, mpi, tmp_path):
    if mpi is not OPEN_MPI:
        pytest.skip("what is looked at is Open MPI's")
    process = start_process([SOURCE / "scripts/run", "configs/pima.yaml", "--set", "train.epochs=2000"], cwd=tmp_path,
                            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_for(lambda: list(tmp_path.glob("runs/*/metrics.jsonl")), what="the first step")
        ranks = [pid for pid in members(process) if pathlib.Path(f"/proc/{pid}/comm").read_text() == "lockstep\n"]
        assert list(map(listens_on, ranks)) == [{LOOPBACK}] * 2  # gloo listens there
    finally:
        end_session(process)


def test_wrong_arguments_are_said_before_anything_is_done(run):
    for arguments in (["--ranks", "0"], ["--prefix"], ["--what"]):
        result = run(SOURCE / "scripts/run", *arguments)
        assert result.returncode == 2 and result.stderr and not result.stdout, arguments


def test_a_copied_tree_is_configured_again(run, tmp_path):
    tree, copy, tools = tmp_path / "tree", tmp_path / "copy", tmp_path / "bin"
    shutil.copytree(SOURCE / "scripts", tree / "scripts")
    (tree / ".deps").symlink_to(SOURCE / ".deps")
    tools.mkdir()
    fake(tools, "cmake", """[ "$1" != --version ] || { echo cmake version 3.30.0; exit; }
[ ! -e build/release/CMakeCache.txt ] || exit 1  # as CMake does over another tree's
mkdir -p build/release && echo "CMAKE_HOME_DIRECTORY:INTERNAL=$PWD" | tee build/release/CMakeCache.txt >build/release/build.ninja
""")
    for folder in (tree, copy):
        shutil.copytree(tree, copy, symlinks=True) if folder == copy else None
        run(folder / "scripts/bootstrap", "--configure", env={"PATH": f"{tools}:{os.environ['PATH']}"}, check=True)
        assert str(folder) in (folder / "build/release/CMakeCache.txt").read_text()


@pytest.fixture
def bare_machine():
    """A folder with the scripts alone, and a PATH with an old cmake, no ninja and no MPI, for a user who is not root."""
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        folder.chmod(0o755)
        shutil.copytree(SOURCE / "scripts", folder / "repository/scripts")
        tools = folder / "bin"
        tools.mkdir()
        hidden = {"ninja", "cmake", "mpicc", "mpirun"}
        for program in pathlib.Path("/usr/bin").iterdir():
            if program.name not in hidden:
                (tools / program.name).symlink_to(program)
        fake(tools, "cmake", "echo cmake version 3.18.4\n")
        for path in [folder / "repository", *(folder / "repository").rglob("*")]:
            os.chown(path, 65534, 65534) if os.getuid() == 0 else None
        yield folder


def test_without_root_each_missing_thing_comes_with_its_lines(run, bare_machine):
    user = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"] if os.getuid() == 0 else []
    result = run(*user, "env", f"PATH={bare_machine}/bin", "HOME=/nonexistent", "bash",
                 bare_machine / "repository/scripts/bootstrap",
                 env={"BASH_FUNC_module%%": "() { if [ \"$3\" = ninja ]; then echo ninja/1.11; fi; }"})
    assert result.returncode == 1
    for line in ("CMake (program:cmake>=3.24)", "module load ninja/1.11", "apt-get install cmake",
                 "dnf install ninja-build", "spack install ninja && spack load ninja"):
        assert line in result.stderr, result.stderr
    assert "yaml-cpp" not in result.stderr, "what is there was listed as missing"
    assert not (bare_machine / "repository/.deps/python").exists()


def test_every_job_script_finds_lockstep_by_the_same_lines():
    def preamble(script):
        lines = script.read_text().splitlines()
        begin = next(i for i, line in enumerate(lines) if line.startswith("# The scheduler runs a copy"))
        return lines[begin:lines.index("fi", lines.index("export LOCKSTEP_HOME LOCKSTEP_PROGRAM=$program LOCKSTEP_SCRIPT=$0"))]
    first, *others = sorted((SOURCE / "job_scripts").glob("*.slurm"))
    assert len(others) == 7
    for script in others:
        assert preamble(script) == preamble(first), script.name
        assert script.with_suffix(".pbs").readlink().name == script.name


@pytest.fixture
def script(run, tmp_path):
    """script(name, NAME=value...) -> what a copy of the job script prints in a folder below tmp_path where scontrol does not answer."""
    (tmp_path / "work").mkdir()
    fake(tmp_path, "scontrol", "exit 1\n")

    def start(name, **variables):
        copy = shutil.copy(SOURCE / "job_scripts" / name, tmp_path / "work/mine.slurm")
        path = f"{tmp_path}:{os.environ['PATH']}"
        return run("bash", copy, cwd=tmp_path / "work", env={"SLURM_JOB_ID": "7", "LOCKSTEP_HOME": "", "PATH": path, **variables})
    return start


SAYS = 'echo "$LOCKSTEP_PROGRAM $*"\n'


@pytest.mark.parametrize("kind", ["mine", "another's", "a link", "a folder", "a text"])
def test_a_job_script_starts_only_your_own_programs_near_the_folder_of_submission(kind, script, tmp_path):
    fake(tmp_path, "other", SAYS)
    for name in ("build/release/bin/lockstep", "build/distributed_data_parallel"):
        place = tmp_path / name
        place.parent.mkdir(parents=True, exist_ok=True)
        if kind == "a link":
            place.symlink_to(tmp_path / "other")
        elif kind == "a folder":
            place.mkdir()
        else:
            fake(place.parent, place.name, SAYS)
        if kind == "another's":
            os.chown(place, 65534, 65534) if os.getuid() == 0 else pytest.skip("only root makes files of others")
        if kind == "a text":
            place.chmod(0o644)
    done = script("ddp.slurm")
    assert (done.returncode, "../build/release/bin/lockstep job train" in done.stdout) == ((0, True) if kind == "mine" else (2, False)), done.output
    done = script("distributed_data_parallel.slurm", LOCKSTEP_PROGRAM=str(tmp_path / "other"))
    assert ("job run ../build/distributed_data_parallel" if kind == "mine" else "job train") in done.stdout, done.output


def test_a_job_script_finds_the_program_of_its_home_before_others(script, tmp_path):
    for folder in ("prefix/bin", "path"):
        (tmp_path / folder).mkdir(parents=True)
        fake(tmp_path / folder, "lockstep", SAYS)
    path = f"{tmp_path / 'path'}:{tmp_path}:{os.environ['PATH']}"
    for home, folder in ((f"{tmp_path}/prefix/share/lockstep/", "prefix/bin"), ("", "path")):
        done = script("ddp.slurm", LOCKSTEP_HOME=home, PATH=path)
        assert done.stdout.startswith(f"{tmp_path}/{folder}/lockstep job train"), done.output
