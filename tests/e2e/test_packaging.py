"""packaging/: as much of the recipes as can be tried without Spack, EasyBuild, conda and Apptainer; a wheel as it is packed."""

import json
import os
import pathlib
import re
import sys
import types
import zipfile

import pytest
from conftest import SOURCE

sys.path.append(str(SOURCE / "scripts"))
from bundling import licences, wheel, yaml_cpp  # noqa: E402

pytestmark = pytest.mark.about("packaging")

RECIPE = SOURCE / "packaging/spack/packages/lockstep/package.py"
DEFINITION = SOURCE / "packaging/apptainer/lockstep.def"


# what the recipes call the libraries that bootstrap brings by Spack's names, and what they tell CMake
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


def test_spacks_recipe_has_what_bootstrap_would_bring():
    text = RECIPE.read_text()
    has = set(re.findall(r'depends_on\("([\w-]+)', text)) | {"zlib"}  # which Spack calls zlib-api
    assert libraries() - has == set()
    assert set(re.findall(r'self\.define\("(\w+)"', text)) - {"MPI_C_COMPILER", "CMAKE_DISABLE_FIND_PACKAGE_MPI"} <= known_to_cmake()
    found = (SOURCE / "cmake/FindLibtorch.cmake").read_text()
    assert f'"py-torch@{re.search(r"set.LIBTORCH_OLDEST ([0-9.]+)", found).group(1)}: ' in text


@pytest.mark.parametrize("cuda", [False, True], ids=["cpu", "cuda"])
def test_easybuilds_recipe_has_what_bootstrap_would_bring(cuda):
    suffix = "-CUDA-12.9.1" if cuda else ""
    file = SOURCE / f"packaging/easybuild/lockstep-0.2.0-foss-2025b{suffix}.eb"
    told = {"SOURCE_TAR_GZ": "lockstep-0.2.0.tar.gz", "SYSTEM": "system"}
    exec(compile(file.read_text(), file, "exec"), told)
    names = {words[0].lower() for words in told["dependencies"]}
    assert {OTHER_NAMES.get(name, name) if name == "nlohmann-json" else name for name in libraries()} <= names
    assert ("nccl" in names, "cuda" in names) == (cuda, cuda)
    assert f"-DLOCKSTEP_CUDA={'ON' if cuda else 'OFF'}" in told["configopts"]
    assert cmake_words(told["configopts"]) <= known_to_cmake()


def test_condas_recipe_has_what_bootstrap_would_bring():
    yaml = pytest.importorskip("yaml")
    recipe = yaml.safe_load((SOURCE / "packaging/conda/recipe.yaml").read_text())
    host = {words.split()[0] for words in recipe["requirements"]["host"]}
    assert {OTHER_NAMES.get(name, name) for name in libraries()} | {"libtorch"} <= host
    assert cmake_words(" ".join(recipe["build"]["script"])) <= known_to_cmake()
    assert recipe["context"]["version"] in (SOURCE / "CMakeLists.txt").read_text()


# --- a wheel -------------------------------------------------------------------------------------------------------------
def packed(folder, names, mask):
    """The wheel of a tree whose files were made in that order and with that umask."""
    before = os.umask(mask)
    for name in names:
        (folder / "tree" / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / "tree" / name).write_text(name)
        (folder / "tree" / name).chmod((0o777 if name == "launcher" else 0o666) & ~mask)
    os.umask(before)
    tree = types.SimpleNamespace(root=folder / "tree", archives={pathlib.Path("/x/libhwloc.a"), pathlib.Path("/x/libyaml-cpp.a")},
                                 version=lambda: "0.2.0", torch=lambda: "2.15.0", torch_is_main=lambda: True, entry_points=b"[x]\n")
    return wheel.pack(tree, SOURCE, folder, (2026, 1, 2, 3, 4, 6))


def test_a_wheels_bytes_depend_on_its_contents_alone_which_its_sbom_names(monkeypatch, tmp_path):
    owners = {"/x/libhwloc.a": "libhwloc-dev: /x", "/x/libyaml-cpp.a": "libyaml-cpp-dev: /x"}
    monkeypatch.setattr(licences, "output", lambda *words: owners.get(str(words[-1]), "1.2+b1"))
    names = ["lib/liblockstep.so", "launcher", "share/man/man1/lockstep.1", "share/lockstep/LICENSE"]
    first, second = packed(tmp_path / "a", names, 0o022), packed(tmp_path / "b", reversed(names), 0o077)
    assert first.read_bytes() == second.read_bytes()
    archive, name = zipfile.ZipFile(first), "lockstep_ddp-0.2.0.dist-info/sboms/lockstep-ddp.cdx.json"  # PEP 770
    assert [name.replace("lockstep_ddp-0.2.0.data", "own") for name in archive.namelist()[:4]] == [
        "own/scripts/lockstep", "lockstep_ddp/lib/liblockstep.so", "lockstep_ddp/share/lockstep/LICENSE", "own/data/share/man/man1/lockstep.1"]
    assert f"{name},{wheel.digest_of(archive.read(name))}," in archive.read("lockstep_ddp-0.2.0.dist-info/RECORD").decode()
    sbom = json.loads(archive.read(name))
    debian = {f"pkg:deb/debian/{package}@1.2%2Bb1?arch=amd64&distro=debian-12"
              for package in ("libhwloc-dev", "nlohmann-json3-dev", "libstdc%2B%2B-12-dev", "libgcc-12-dev", "libc6-dev")}
    assert {part["purl"].partition("?download")[0] for part in sbom["components"]} == debian | {
        "pkg:pypi/torch@2.15.0", f"pkg:generic/yaml-cpp@{yaml_cpp.VERSION}", "pkg:deb/ubuntu/libc6-dev@2.27-3ubuntu1.6?arch=amd64&distro=ubuntu-18.04"}
    assert sbom["dependencies"] == [{"ref": "pkg:pypi/lockstep-ddp@0.2.0", "dependsOn": [part["bom-ref"] for part in sbom["components"]]}]


# --- Apptainer ---------------------------------------------------------------------------------------------------------
@pytest.mark.full
def test_apptainer_copies_all_that_cmake_wants(build_dir, run, tmp_path):
    source = tmp_path / "source"
    source.mkdir()
    copied = set()
    for line in re.search(r"^%files\n(.*?)^%", DEFINITION.read_text(), re.M | re.S)[1].split("\n"):
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
