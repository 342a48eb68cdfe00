"""packaging/: as much of the Spack recipe and of the Apptainer definition as can be tried without either."""

import contextlib
import pathlib
import re
import shutil
import sys
import types

import pytest
from conftest import SOURCE

pytestmark = pytest.mark.about("packaging")

RECIPE = SOURCE / "packaging/spack/packages/lockstep/package.py"
DEFINITION = SOURCE / "packaging/apptainer/lockstep.def"


# --- Spack: the recipe runs against a stand-in that writes down what it is told ------------------------------------------
class Spec:
    """A spec that satisfies what it was made of; each package of it lies in /spack/NAME."""

    def __init__(self, *words):
        self.words = words

    def satisfies(self, word):
        return word in self.words

    def __getitem__(self, name):
        return types.SimpleNamespace(prefix=f"/spack/{name}", mpicc="/spack/mpi/bin/mpicc")


def recipe(monkeypatch):
    """The class of the recipe, and its directives: name -> [arguments]."""
    told = {name: [] for name in ("version", "variant", "depends_on", "conflicts", "license", "generator")}
    directives = {name: lambda *args, _name=name, **how: told[_name].append((*args, how)) for name in told}
    names = {"spack": {}, "spack.package": {**directives, "join_path": pathlib.Path, "which": shutil.which,
                                                   "when": contextlib.nullcontext},
             "spack_repo.builtin.build_systems.cmake": {
                 "CMakePackage": type("CMakePackage", (), {"define": lambda _, name, value: f"-D{name}={value}"}),
                 "generator": directives["generator"]},
             "spack_repo.builtin.build_systems.cuda": {
                 "CudaPackage": type("CudaPackage", (), {"cuda_arch_values": ("80", "90")})}}
    for name, content in names.items():
        module = types.ModuleType(name)
        module.__dict__.update(content)
        monkeypatch.setitem(sys.modules, name, module)
    for name in ("spack_repo", "spack_repo.builtin", "spack_repo.builtin.build_systems"):
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    content = {"__file__": str(RECIPE), "__name__": "recipe"}
    exec(compile(RECIPE.read_text(), RECIPE, "exec"), content)
    return content["Lockstep"], told


def test_spacks_recipe_has_what_bootstrap_would_bring(monkeypatch):
    _, told = recipe(monkeypatch)
    has = {re.match(r"[\w-]+", words[0]).group(0) for words in told["depends_on"]}
    has |= {"gcc", "git", "ninja", "pkgconf", "openmpi", "python"}  # a compiler, a generator, virtual ones; a checkout
    has |= {"ccache"}  # of no use where each build begins in an empty place
    has |= {"zlib"} if "zlib-api" in has else set()
    rows = [line.split("\t") for line in (SOURCE / "scripts/packages.tsv").read_text().splitlines() if line[0] != "#"]
    wanted = {re.match(r"[\w-]+", row[5]).group(0) for row in rows if row[1] in ("build", "extra")}
    assert wanted - has == set()
    torch = next(words[0] for words in told["depends_on"] if words[0].startswith("py-torch@"))
    oldest = re.search(r"set\(LIBTORCH_OLDEST ([\d.]+)\)", (SOURCE / "cmake/FindLibtorch.cmake").read_text()).group(1)
    assert torch.split()[0].partition("@")[2] == oldest + ":"


@pytest.mark.parametrize("words", [(), ("+cuda", "+tests", "+mpi")])
def test_spacks_recipe_gives_cmake_words_that_it_knows(words, monkeypatch):
    package, _ = recipe(monkeypatch)
    package.spec = Spec(*words)
    known = "".join(path.read_text() for path in [SOURCE / "CMakeLists.txt", *(SOURCE / "cmake").glob("*.cmake")])
    given = dict(word[2:].split("=", 1) for word in package().cmake_args())
    assert given["LIBTORCH_ROOT"] == "/spack/py-torch"
    for part in ("CUDA", "TESTS"):
        assert given[f"LOCKSTEP_{part}"] == ("ON" if words else "OFF")
    assert ("NCCL_ROOT" in given) == bool(words)
    assert ("MPI_C_COMPILER" in given, "CMAKE_DISABLE_FIND_PACKAGE_MPI" in given) == (bool(words), not words)
    assert given["CMAKE_CXX_FLAGS_RELEASE"] in (SOURCE / "CMakePresets.json").read_text()
    parts = re.search(r"foreach\(part ([A-Z ]+)\)", known).group(1).split()
    of_cmakes_own = {"MPI_C_COMPILER", "CMAKE_DISABLE_FIND_PACKAGE_MPI", "CMAKE_CXX_FLAGS", "CMAKE_CXX_FLAGS_RELEASE"}
    assert set(given) - of_cmakes_own - {f"LOCKSTEP_{part}" for part in parts} <= set(re.findall(r"\w+", known))


def test_spacks_recipe_takes_the_sources_that_it_lies_in(monkeypatch):
    assert recipe(monkeypatch)[0].git == SOURCE.as_uri()


# --- EasyBuild and conda: what they name, and what they tell CMake --------------------------------------------------------
OTHER_NAMES = {"nlohmann-json": "nlohmann_json", "boost": "libboost-devel", "hwloc": "libhwloc"}  # conda's; EasyBuild's but for case


def libraries():
    """The libraries that bootstrap brings, by Spack's names."""
    rows = [line.split("\t") for line in (SOURCE / "scripts/packages.tsv").read_text().splitlines() if line[0] != "#"]
    return {re.match(r"[\w-]+", row[5]).group(0) for row in rows if row[1] in ("build", "extra") and row[2].startswith("header:")}


def cmake_words(text):
    return set(re.findall(r"-D(\w+)=", text))


def known_to_cmake():
    known = "".join(path.read_text() for path in [SOURCE / "CMakeLists.txt", *(SOURCE / "cmake").glob("*.cmake")])
    parts = re.search(r"foreach\(part ([A-Z ]+)\)", known).group(1).split()
    return set(re.findall(r"\w+", known)) | {f"LOCKSTEP_{part}" for part in parts} | {"CMAKE_CXX_FLAGS", "CMAKE_CXX_FLAGS_RELEASE"}


@pytest.mark.parametrize("cuda", [False, True], ids=["cpu", "cuda"])
def test_easybuilds_recipe_has_what_bootstrap_would_bring(cuda):
    suffix = "-CUDA-12.9.1" if cuda else ""
    file = SOURCE / f"packaging/easybuild/lockstep-0.1.0-foss-2025b{suffix}.eb"
    told = {"SOURCE_TAR_GZ": "lockstep-0.1.0.tar.gz", "SYSTEM": "system"}
    exec(compile(file.read_text(), file, "exec"), told)
    names = {words[0].lower() for words in told["dependencies"]}
    assert {OTHER_NAMES.get(name, name) if name == "nlohmann-json" else name for name in libraries()} <= names
    assert ("nccl" in names, "cuda" in names) == (cuda, cuda)
    assert f"-DLOCKSTEP_CUDA={'ON' if cuda else 'OFF'}" in told["configopts"]
    assert cmake_words(told["configopts"]) <= known_to_cmake()
    torch = next(words for words in told["dependencies"] if words[0] == "PyTorch")
    found = (SOURCE / "cmake/FindLibtorch.cmake").read_text()
    bounds = [re.search(rf"set\(LIBTORCH_{end} ([\d.]+)\)", found).group(1) for end in ("OLDEST", "NEWEST")]
    numbers = [tuple(map(int, version.split(".")))[:2] for version in (bounds[0], torch[1], bounds[1])]
    assert numbers == sorted(numbers)


def test_condas_recipe_has_what_bootstrap_would_bring():
    yaml = pytest.importorskip("yaml")
    recipe = yaml.safe_load((SOURCE / "packaging/conda/recipe.yaml").read_text())
    host = {words.split()[0] for words in recipe["requirements"]["host"]}
    assert {OTHER_NAMES.get(name, name) for name in libraries()} | {"libtorch"} <= host
    assert cmake_words(" ".join(recipe["build"]["script"])) <= known_to_cmake()
    assert recipe["context"]["version"] in (SOURCE / "CMakeLists.txt").read_text()


# --- Apptainer ---------------------------------------------------------------------------------------------------------
def sections(definition=DEFINITION):
    parts = re.split(r"^%(\w+)\n", definition.read_text(), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2]))


@pytest.mark.parametrize("name", ["lockstep.def", "wheel.def"])
def test_apptainers_sections_are_sound_shell(name, run, tmp_path):
    if not shutil.which("shellcheck"):
        pytest.skip("no shellcheck")
    of_file = sections(DEFINITION.parent / name)
    for part in ("post", "environment", "runscript", "test"):
        (tmp_path / part).write_text("#!/bin/sh\n" + of_file[part].replace("{{ wheels }}", "$wheels"))
        run("shellcheck", "--exclude=SC2154", tmp_path / part, check=True)  # wheels comes from outside


def test_apptainer_copies_all_that_cmake_wants(build_dir, run, tmp_path):
    source = tmp_path / "source"
    source.mkdir()
    copied = set()
    for line in sections()["files"].split("\n"):
        for name, to in [line.split()] if line.strip() else []:
            assert to == "/opt/source/"
            (source / name).symlink_to(SOURCE / name)
            copied.add(name)
    installed = re.search(r"foreach\(folder ([a-z_ ]+)\)", (SOURCE / "cmake/LockstepInstall.cmake").read_text()).group(1)
    assert set(installed.split()) <= copied
    torch = re.search(r'LIBTORCH_HINTS "(.+)"', (build_dir / "lockstepConfig.cmake").read_text())
    run("cmake", "-S", source, "-B", tmp_path / "build", "-G", "Ninja", "-DLOCKSTEP_TESTS=OFF", "-DLOCKSTEP_CUDA=OFF",
        f"-DLIBTORCH_ROOT={torch.group(1)}", check=True)
    script = (tmp_path / "build/cmake_install.cmake").read_text()
    for path in re.findall(rf'"({re.escape(str(source))}/[^"]+?)/?"', script):
        assert pathlib.Path(path).exists(), path


def test_apptainers_image_would_run_train_and_test_itself(installed, run, tmp_path):
    """What its scripts do, with an ordinary install in the place of /opt/lockstep."""
    script = tmp_path / "script"
    parts = {name: text.replace("/opt/lockstep", str(installed)) for name, text in sections().items()}
    for name, words in (("test", []), ("runscript", ["config", "configs/pima.yaml"])):
        script.write_text(parts["environment"] + parts[name])
        said = run("sh", script, *words, cwd=tmp_path, env={"LOCKSTEP_HOME": "/not/in/here"}, check=True).stdout
        assert "Average Loss" in said if name == "test" else "batch_size" in said
