"""module load lockstep, in Environment Modules and in Lmod, as a user and as an admin meet it."""

import os
import re
import shlex

import pytest
from cluster_kit import SOURCE, runs, start_lab
from conftest import run_process
from pbs_kit import ended
from pbs_kit import pbs  # noqa: F401  (a fixture)

pytestmark = pytest.mark.about("modules")

VERSION = re.search(r"project\(lockstep VERSION ([0-9.]+)", (SOURCE / "CMakeLists.txt").read_text()).group(1)
INITS = {"modules": ["/usr/share/modules/init/bash"],
         "lmod": [str(SOURCE / ".deps/lmod/usr/share/lmod/lmod/init/bash"), "/usr/share/lmod/lmod/init/bash"]}
FORGET = "unset " + " ".join(f'"${{!{start}@}}"' for start in (
    "MODULE", "LMOD", "LOADEDMODULES", "_LMFILES_", "_ModuleTable", "__MODULES", "__LMOD"))


class Modules:
    """One of the two tools: runs scripts in a bash that knows `module`."""

    def __init__(self, name):
        self.name = name
        self.init = next((init for init in INITS[name] if os.path.exists(init)), None)
        if not self.init:
            pytest.skip(f"{name} is not here (scripts/bootstrap --tests brings it)")
        if name == "lmod" and " " in self.init:
            pytest.skip("Lmod itself does not start from a folder whose name has a space")

    def script(self, text, used=()):
        """`used` are the folders that are given to `module use`, the first one to be looked in first."""
        uses = [f"module use {shlex.quote(str(folder))}" for folder in reversed(used)]
        return ["bash", "-c", "\n".join([FORGET, f"source {shlex.quote(self.init)}", *uses, text])]

    def bash(self, text, used=(), check=True, **how):
        result = run_process(self.script(text, used), **how)
        assert not check or result.returncode == 0, result.output
        return result


@pytest.fixture(scope="module", params=INITS)
def modules(request):
    return Modules(request.param)


@pytest.fixture
def tree(build_dir, tmp_path):
    """tree(NAME, version=VERSION) -> an install tree that has nothing but what the modulefiles are about."""
    def make(name, version=VERSION):
        prefix = tmp_path / name
        for file in (f"lib/liblockstep.so.{version}", "bin/lockstep"):
            (prefix / file).parent.mkdir(parents=True)
            (prefix / file).touch(0o755)
        script = (build_dir / "install_tree.cmake").read_text().replace(VERSION, version)
        (tmp_path / "install_tree.cmake").write_text(script)
        run_process(["cmake", f"-DCMAKE_INSTALL_PREFIX={prefix}", "-P", tmp_path / "install_tree.cmake"], check=True)
        return prefix
    return make


SAY = 'echo "$(command -v lockstep)"; echo "$LOCKSTEP_HOME"; echo "$CMAKE_PREFIX_PATH"'


def said_of(prefix):
    return [f"{prefix}/bin/lockstep", f"{prefix}/share/lockstep", str(prefix)]


def test_load_sets_what_a_user_needs_and_unload_takes_it_back(modules, installed, tmp_path):
    variables = "env | sort | grep -vE '^(_|MODULE|LMOD|LOADEDMODULES|MANPATH)'"
    result = modules.bash(f"""{variables} >before
        module load lockstep; module load lockstep; {SAY}; {variables} >loaded
        module unload lockstep; {variables} >after; cmp before after""", [installed / "modules"],
                          cwd=tmp_path, env={"CMAKE_PREFIX_PATH": "/a b:/c", "PATH": "/usr/bin:/bin"})
    assert result.stdout.split("\n") == [*said_of(installed)[:2], f"{installed}:/a b:/c", ""]
    before, loaded = ((tmp_path / name).read_text().split("\n") for name in ("before", "loaded"))
    assert {line.split("=")[0] for line in set(loaded) - set(before)} == {"CMAKE_PREFIX_PATH", "LOCKSTEP_HOME", "PATH"}


def test_sbatch_of_an_installed_script_after_load(installed, tmp_path):
    with start_lab(tmp_path / "lab", "slurm") as lab:
        words = Modules("lmod").script(
            "module load lockstep; sbatch --parsable --ntasks=2 $LOCKSTEP_HOME/job_scripts/ddp.slurm "
            "configs/pima.yaml --set train.max_steps=2", [installed / "modules"])
        job = lab.run(*words, cwd=tmp_path).stdout.strip()
        state = lab.wait(job)
        assert state["ExitCode"] == "0:0", (tmp_path / f"lockstep-{job}.out").read_text()
    assert len(runs(tmp_path)) == 1


def test_qsub_of_an_installed_script_after_load(installed, pbs, tmp_path):  # noqa: F811
    words = Modules("modules").script(
        "module load lockstep; qsub -v CONFIG=configs/pima.yaml,SET=train.max_steps=2 "
        "$LOCKSTEP_HOME/job_scripts/ddp.pbs", [installed / "modules"])
    job = pbs.run(*words, cwd=tmp_path).stdout.strip()
    assert ended(pbs, job) == 0, [log.read_text() for log in tmp_path.glob("lockstep.o*")]
    assert len(runs(tmp_path)) == 1


@pytest.mark.full
def test_one_version_at_a_time(modules, tree):
    """Environment Modules refuses the second one and has `module switch`; Lmod swaps them and says so."""
    old, new = tree("old"), tree("new", "9.0.0")
    used = [old / "modules", new / "modules"]
    result = modules.bash(f"module load lockstep/{VERSION}; module load lockstep/9.0.0; {SAY}", used)
    if modules.name == "lmod":
        assert result.stdout.split("\n")[:3] == said_of(new)
        assert f"lockstep/{VERSION} => lockstep/9.0.0" in result.output
    else:
        assert result.stdout.split("\n")[:3] == said_of(old)
        assert "conflict" in result.stderr.lower()
    result = modules.bash(f"module load lockstep/{VERSION}; module switch lockstep lockstep/9.0.0; {SAY}", used)
    assert result.stdout.split("\n")[:3] == said_of(new)
