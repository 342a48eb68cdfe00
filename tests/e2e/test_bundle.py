"""scripts/bundle: a tree that trains on machines where nothing is installed."""

import os
import platform
import re
import shutil
import subprocess
import sys

import pytest
from cluster_kit import runs
from conftest import SOURCE, run_process
from process_kit import LONG_PATIENCE, NOBODY, let_others_pass

sys.path.append(str(SOURCE / "scripts"))
from bundling import check  # noqa: E402

pytestmark = [pytest.mark.about("packaging", "scripts"), pytest.mark.full]

SCRIPT = SOURCE / "scripts/bundle"
FEW_STEPS = ("train", "configs/mnist.yaml", "--set", "train.max_steps=2", "--set", "run.name=a")


def make_bundle(*words):
    system = platform.freedesktop_os_release()
    if (system.get("ID"), system.get("VERSION_ID")) != ("debian", "12"):
        pytest.skip(f"a bundle is made on Debian 12, and this is {system.get('PRETTY_NAME')}")
    made = run_process([SCRIPT, *words], timeout=LONG_PATIENCE)
    if "cannot fetch" in made.stderr or "/pip failed" in made.stderr:
        pytest.skip(f"what a bundle is linked against is not at hand: {made.stderr.splitlines()[0]}")
    assert made.returncode == 0, made.output


@pytest.fixture(scope="session")
def bundle(build_dir, once):
    """The tree of a bundle of this build."""
    def make(folder):
        make_bundle("--build", build_dir, "--folder", folder / "made")
        assert [file.name for file in folder.iterdir()] == ["made"]
    return once("bundle", make) / "made"


def plugins_of(folder):
    return {file.name for name in ("mpi_*", "fast") for file in folder.glob(f"lib/liblockstep_{name}.so")}


def test_it_holds_no_mpi_nothing_of_the_c_library_and_the_terms_of_all_else(bundle, build_dir):
    names = {file.name for file in (bundle / "lib").iterdir() if not file.is_symlink()}
    assert {name for name in names if name.startswith("liblockstep_")} == plugins_of(build_dir)
    assert not [name for name in names if re.match(r"lib(mpi|c|m|stdc\+\+|gcc_s|hwloc|pthread)\.", name)]
    own = re.compile(r"liblockstep|libtorch_cpu|libc10|.*-lockstep\.so")
    assert not [name for name in names if not own.match(name)], "a site's library may have the same name"
    assert {folder.name for folder in bundle.iterdir()} == {"bin", "lib", "licences", "modules", "share"}
    # nothing asks for more than libtorch does
    newest = check.newest(bundle)
    assert newest["GLIBC"] == (2, 28) and newest["GLIBCXX"] <= (3, 4, 25)
    own = max(number for file in (bundle / "bin/lockstep", *bundle.glob("lib/liblockstep*.so*"))
              for kind, number in check.versions(file) if kind == "GLIBC")
    assert own < (2, 28)
    # every library has its terms beside it
    rows = [line.split() for line in (bundle / "licences/README").read_text().splitlines()]
    named = {name for name, _ in rows}
    assert all((bundle / "licences" / text).stat().st_size > 500 for _, text in rows)
    assert {file.name for file in (bundle / "lib").iterdir() if not file.name.startswith("liblockstep")} <= named
    assert {"libhwloc.a", "libyaml-cpp.a", "libpng.a", "libjpeg.a", "libz.a", "libstdc++-12-dev"} <= named


def test_it_trains_where_only_the_c_library_is(bundle, tmp_path):
    """An empty root: the bundle, /proc, /dev, a temporary folder, and the machine's glibc and libstdc++."""
    said_by_ldd = run_process(["ldd", bundle / "bin/lockstep"], check=True).stdout
    system = [path for path in re.findall(r"(/\S+) \(", said_by_ldd) if not path.startswith(str(bundle))]
    root = tmp_path / "root"
    for path in system:
        (root / path.lstrip("/")).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, root / path.lstrip("/"))
    for name in ("proc", "dev", "tmp", "bundle"):
        (root / name).mkdir()
    script = f"""mount -t proc proc {root}/proc && mount --rbind /dev {root}/dev && mount --bind {bundle} {root}/bundle &&
        mount -o remount,bind,ro {root}/bundle && cd {root} && chroot . /bundle/bin/lockstep "$@" || exit 1"""
    space = ["unshare", "--mount", "sh", "-c"]
    if subprocess.run([*space, "mount -t proc proc /proc"], capture_output=True).returncode:
        pytest.skip("this user may make no mount namespace")
    done = run_process([*space, script, "in", *FEW_STEPS, "--set", "run.dir=/tmp/runs"], env={"TMPDIR": "/tmp"})
    assert done.returncode == 0, done.output
    assert "stopped: max_steps" in done.output


@pytest.fixture
def moved(bundle, tmp_path):
    """A read-only copy in another place, with a name that has a space."""
    place = tmp_path / "some where" / "lockstep"
    shutil.copytree(bundle, place, symlinks=True, copy_function=os.link)
    folders = ["find", place, "-type", "d", "-exec", "chmod"]  # the files are those of the other tests
    run_process([*folders, "a-w", "{}", "+"], check=True)
    yield place
    run_process([*folders, "u+w", "{}", "+"], check=True)
    shutil.rmtree(place)


def test_anybody_runs_a_copy_that_was_moved(bundle, moved, tmp_path, tmp_path_factory):
    words, folder = [], tmp_path / "empty"
    folder.mkdir()
    if os.getuid() == 0:
        words = NOBODY
        os.chown(folder, 65534, 65534)
        let_others_pass(moved / "bin", tmp_path_factory.getbasetemp())
        if run_process([*words, "test", "-x", moved / "bin/lockstep"]).returncode != 0:
            pytest.skip("another user may not be taken on here, or does not reach the bundle")
    done = run_process([*words, moved / "bin/lockstep", *FEW_STEPS], cwd=folder)
    assert done.returncode == 0, done.output
    assert len(runs(folder)) == 1
    known = run_process([*words, "ldd", moved / "bin/lockstep"], check=True).stdout
    assert str(SOURCE) not in known and str(bundle) not in known


SAME = """import sys, torch
one, other = (torch.load(path, weights_only=True)["model"] for path in sys.argv[1:])
assert one and one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)"""


def test_it_ends_with_the_bits_of_its_build_and_keeps_its_own_libraries(moved, lockstep, python, tmp_path):
    for name, program in (("build", lockstep), ("bundle", moved / "bin/lockstep")):
        run_process([program, *FEW_STEPS, "--set", "optim.name=adam", "--set", f"run.dir={tmp_path / name}"],
                    cwd=tmp_path, check=True)
    saved = [next((tmp_path / name).glob("a/checkpoints/*.pt")) for name in ("build", "bundle")]
    run_process([python, "-c", SAME, *saved], check=True)
    # nor does a site's library path put another library in their place
    for name in ("libtorch_cpu.so", "libc10.so", "liblockstep.so.0.1", "libhwloc.so.15", "libgomp.so.1", "libcudart.so.13"):
        (tmp_path / name).write_text("no library at all")
    done = run_process([moved / "bin/lockstep", "whoami"], env={"LD_LIBRARY_PATH": tmp_path})
    assert done.returncode == 0, done.output


def test_the_machines_mpi_is_found(moved, mpirun, mpi, tmp_path):
    done = mpirun(2, moved / "bin/lockstep", *FEW_STEPS, "--set", "launch.backend=mpi", cwd=tmp_path, check=True)
    assert "on 2 ranks (cpu, mpi" in done.output
    assert f"launcher {mpi.launcher}" in mpirun(2, moved / "bin/lockstep", "whoami", check=True).output
