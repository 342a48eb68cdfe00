"""module load lockstep, in Environment Modules and in Lmod, as a user and as an admin meet it."""

import os
import re
import shlex

import pytest
from cluster_kit import SOURCE, runs, start_lab
from conftest import cache_value, run_process
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


def site_of(folder, *prefixes):
    """An admin's own folder of modulefiles, with a link to each of these trees'."""
    (folder / "lockstep").mkdir(parents=True)
    for prefix in prefixes:
        for file in (prefix / "modules/lockstep").iterdir():
            (folder / "lockstep" / file.name).symlink_to(file)
    return folder


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


def test_it_tells_about_itself(modules, installed):
    for words in ("help", "whatis", *(["spider"] if modules.name == "lmod" else [])):
        result = modules.bash(f"module {words} lockstep", [installed / "modules"])
        wanted = "LOCKSTEP_HOME/job_scripts/ddp.pbs" if words == "help" else VERSION
        assert "DistributedDataParallel for C++" in result.output and wanted in result.output
    result = modules.bash("module -t avail", [installed / "modules"])
    assert re.findall(r"lockstep/\S+", result.output) == [f"lockstep/{VERSION}"], "one, and only its own tool's"


def test_after_load_an_empty_folder_is_enough(modules, installed, mpiexec, tmp_path):
    """A run by the names of the install, and a stranger's project that finds the library."""
    folder = tmp_path / "empty"
    folder.mkdir()
    modules.bash(f"""module load lockstep || exit
        {mpiexec} -n 2 lockstep train configs/pima.yaml --set train.max_steps=2 || exit
        cmake -S {SOURCE}/tests/consumer -B build -G Ninja""", [installed / "modules"], cwd=folder)
    assert len(runs(folder)) == 1
    assert cache_value(folder / "build", "lockstep_DIR") == f"{installed}/lib/cmake/lockstep"


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


def test_the_newest_is_the_default_unless_the_site_says_another(modules, tree, tmp_path):
    trees = {version: tree(version, version) for version in ("9.1.0", "9.9.0", "9.10.0")}
    site = site_of(tmp_path / "site", *trees.values())
    assert modules.bash(f"module load lockstep; {SAY}", [site]).stdout.split("\n")[:3] == said_of(trees["9.10.0"])
    (site / "lockstep/.modulerc").write_text("#%Module\nmodule-version lockstep/9.1.0 default\n")
    assert modules.bash(f"module load lockstep; {SAY}", [site]).stdout.split("\n")[:3] == said_of(trees["9.1.0"])


# What either tool and CMake can take; a $ or a lone { Environment Modules cannot, but in a site's folder both will do.
ODD = """it's "a" [b] (c) $(id) `id` #1; & *? ~ ünï"""
ODDER = "a\"b]] {c $HOME ${HOME}"


@pytest.mark.parametrize("name, used_from", [(ODD, "the tree"), (ODD, "a site"), (ODDER, "a site")])
def test_any_character_may_be_in_the_prefix(name, used_from, modules, tree, tmp_path):
    prefix = tree(name)
    used = prefix / "modules" if used_from == "the tree" else site_of(tmp_path / "site", prefix)
    result = modules.bash(f"module load lockstep; {SAY}; module unload lockstep; echo ${{LOCKSTEP_HOME-gone}}", [used],
                          env={"LC_ALL": "C.UTF-8"})
    assert result.stdout.split("\n") == [*said_of(prefix), "gone", ""], result.stderr


def test_lmod_can_do_without_its_own_file(tree):
    prefix = tree("here")
    (prefix / f"modules/lockstep/{VERSION}.lua").unlink()
    assert Modules("lmod").bash(f"module load lockstep; {SAY}", [prefix / "modules"]).stdout.split("\n")[:3] == said_of(
        prefix)


def test_a_tree_that_was_moved_is_found_where_it_is(modules, tree, tmp_path):
    moved = tree("here").rename(tmp_path / "there")
    tree("here")  # somebody else's by now
    assert modules.bash(f"module load lockstep; {SAY}", [moved / "modules"]).stdout.split("\n")[:3] == said_of(moved)


def test_a_tree_that_is_gone_is_said(modules, tree, tmp_path):
    prefix = tree("here")
    site = tmp_path / "site"
    (prefix / "modules").rename(site)
    (prefix / "lib").rename(prefix / "lib64")
    result = modules.bash("module load lockstep", [site], check=False)
    assert result.returncode != 0
    said = " ".join(result.stderr.split())  # Lmod breaks lines, where depends on the paths
    assert f"lockstep {VERSION} is neither around" in said and f"nor in {prefix}" in said
    assert VERSION in modules.bash("module whatis lockstep; module -t avail", [site]).output


def test_a_staged_install_names_its_last_place(modules, build_dir, tmp_path):
    run_process(["cmake", "-DCMAKE_INSTALL_PREFIX=/opt/lockstep", "-P", build_dir / "install_tree.cmake"],
                env={"DESTDIR": tmp_path}, check=True)
    result = modules.bash("module show lockstep", [tmp_path / "opt/lockstep/modules"])
    assert "/opt/lockstep/share/lockstep" in result.output


def test_what_was_loaded_for_the_build_comes_and_goes_with_it(modules, tree, build_dir, tmp_path):
    prefix = tree("here")
    script = re.sub(r"set\(built_with .*\)", 'set(built_with "mine/1;brought/2")',
                    (build_dir / "install_tree.cmake").read_text())
    (tmp_path / "asks.cmake").write_text(script)
    run_process(["cmake", f"-DCMAKE_INSTALL_PREFIX={prefix}", "-P", tmp_path / "asks.cmake"], check=True)
    for name in ("mine/1", "brought/2"):
        (tmp_path / "site" / name).parent.mkdir(parents=True)
        (tmp_path / "site" / name).write_text("#%Module1.0\n")
    loaded = 'echo "$LOADEDMODULES"'
    result = modules.bash(f"module load mine; module load lockstep; {loaded}; module unload lockstep; {loaded}",
                          [prefix / "modules", tmp_path / "site"])
    assert result.stdout.split() == [f"mine/1:brought/2:lockstep/{VERSION}", "mine/1"], result.stderr
