"""init_process_group("lockstep") in Python: gloo's bytes, and errors that name the rank at fault."""

import os
import shutil

import pytest

from conftest import SOURCE, cache_value, run_process
from process_kit import PATIENCE

pytestmark = pytest.mark.about("comm")

PROGRAMS = SOURCE / "tests/python"


@pytest.fixture(scope="session")
def python_with_backend(build_dir, python, tmp_path_factory):
    """run(PROGRAM, WORD...) in a Python that finds the build's module."""
    if not (build_dir / "lib/liblockstep_python.so").exists():
        pytest.fail(f"the module for Python is not built: run cmake --build {build_dir} --target lockstep_python")

    def run(program, *words, modules=build_dir / "lib/python", check=True, **env):
        path = ":".join(map(str, filter(None, [modules, os.environ.get("PYTHONPATH")])))  # with another torch in --full
        return run_process([python, PROGRAMS / program, *words], env={"PYTHONPATH": path, "TMPDIR": str(tmp_path_factory.mktemp("ranks")), **env}, check=check, timeout=PATIENCE)
    return run


@pytest.mark.parametrize("world", [3, *(pytest.param(world, marks=pytest.mark.full) for world in (1, 2, 4, 5, 6, 7, 8))])
def test_each_collective_type_and_operation_has_gloos_bytes(python_with_backend, world):
    python_with_backend("collectives.py", world)


@pytest.mark.parametrize("case", ["killed", "stopped", "raised", "forks", "loader_workers", "no_destroy", "groups_again", "other_threads_run"])
def test_failures_forks_and_exits(python_with_backend, case):
    python_with_backend("failures.py", case)


def test_fsdp2_averages_over_both(python_with_backend, build_dir):
    if tuple(map(int, cache_value(build_dir, "LOCKSTEP_LIBTORCH_VERSION").split(".")[:2])) < (2, 15):
        pytest.skip("FSDP2 may not average on CPUs (pytorch#162338)")
    python_with_backend("fsdp2.py", 2, 3)


def test_another_torch_is_refused(python_with_backend, build_dir, tmp_path):
    modules = shutil.copytree(build_dir / "lib/python", tmp_path / "python")
    module = modules / "lockstep_ddp/__init__.py"
    module.write_text(module.read_text().replace('TORCH = "', 'TORCH = "1'))
    result = python_with_backend("failures.py", "no_destroy", modules=modules, check=False)
    assert result.returncode != 0 and "was compiled against torch 12." in result.stderr and "hint: run pip install" in result.stderr, result.output
