"""What only scripts/test --full does: other builds, other MPIs, sanitizers and the long campaigns."""

import os
import pathlib
import re
import shutil
import subprocess
import sys

import changes
import program
import modules
from paths import BUILD, PYTHON, REPORTS, ROOT
from steps import build, succeeds

# What another libtorch may change beside the unit tests: the bits, next to the Python of the same version, and files.
OF_BITS = ("parity", "train_bits", "resume", "checkpoint", "bert", "before", "predict", "every_command", "exported",
           "python_backend", "gpu_lab", "gpu_lab_modes", "gpu_lab_step")
OTHERS = ("2.7.1", "2.11.0")  # the oldest, and the last main one; the newest is what everything else runs with
# Other Pythons for the backend of Python: two have a torch of their own (pairs.txt), the others the main one.
PYTHONS = {"3.10": "2.9.1", "3.12": "2.13.0", "3.13": None, "3.14": None}
IMPORTED = ("filelock", "fsspec", "jinja2", "markupsafe", "mpmath", "networkx", "sympy", "typing_extensions.py")  # by any torch
# The modules that read what others wrote, or share memory. Not: 20 ranks, which want 6 GB, and a stranger's own project.
WORTH_SANITIZING = ("base", "checkpoint", "comm", "comm/rendezvous", "comm/mpi", "comm/shm", "comm/watch", "config", "data",
                    "every command", "exported", "kernels", "launch", "models", "optim", "parallel", "report", "run_folder", "tasks", "text", "zero")
# Leaks are MPI's and libtorch's; gcc's sanitizer must not object to being loaded by a plug-in's host; SIGBUS is left to the
# system, as tests of it want; and what a test preloads may stand before the sanitizer.
SANITIZED = {"ASAN_OPTIONS": "detect_leaks=0:detect_odr_violation=0:handle_sigbus=0:verify_asan_link_order=0",
             "UBSAN_OPTIONS": "print_stacktrace=1"}


def about(modules, left_out=()):
    return [*(f"--about={module}" for module in modules), *(f"--ignore={ROOT}/tests/e2e/test_{name}.py" for name in left_out)]


def other_build(preset, name, *options, source=ROOT, targets=()):
    folder = ROOT / "build" / name
    return (succeeds("cmake", "--preset", preset, "-B", folder, "-DLOCKSTEP_TESTS=ON", *options, cwd=source, stdout=sys.stderr) and
            build(folder, *targets))


def try_build(run, name, preset, options, chosen, env):
    if run.run(f"build {name}", other_build, preset, name, *options):
        folder, env = ROOT / "build" / name, {**os.environ, **env}
        run.run(f"unit tests of {name}", modules.run, folder, REPORTS / f"{name}-ctest.xml", env=env)
        run.run(f"program tests of {name}", program.run, name, *chosen, build=folder, env=env)


def try_libtorch(run, version):
    """Against another libtorch; Python's side of the tests has that one too."""
    wheels = ROOT / f".deps/libtorch-{version}"  # not there for the main one, which is in .deps/python
    where, env = ([f"-DLIBTORCH_ROOT={wheels}/torch"], {"PYTHONPATH": str(wheels)}) if wheels.exists() else ([], {})
    cuda = "OFF" if wheels.exists() and not (wheels / "nvidia/cu13").exists() else "AUTO"  # pretended GPUs are CUDA 13's
    try_build(run, f"libtorch-{version}", "release", [*where, f"-DLOCKSTEP_CUDA={cuda}"],
              [f"tests/e2e/test_{name}.py" for name in OF_BITS], env)


def try_python(run, version, torch):
    """The backend for Python, one library for all Pythons that have this torch."""
    name, home = f"python-{version}", ROOT / f".deps/python-{version}"
    folder, lock = (ROOT / "build" / name, "pairs") if torch else (BUILD, "cpu")
    places = [*pathlib.Path.home().glob(f".pyenv/versions/{version}.*/bin"), *os.get_exec_path()]
    python = shutil.which(f"python{version}", path=os.pathsep.join(map(str, places)))
    if not python or not succeeds(python, "-m", "venv", home):
        return run.skip(f"python{version} is not installed")
    own, main = home / f"lib/python{version}/site-packages", next((ROOT / ".deps/python/lib").glob("python3*/site-packages"))
    for module in IMPORTED:
        (own / module).exists() or (own / module).symlink_to(main / module)
    cuda = [*main.glob("nvidia/*/lib"), *ROOT.glob(".deps/libtorch-2.7.1/nvidia/*/lib")]  # import torch loads it
    env = {**os.environ, "TEST_PYTHON": str(home / "bin/python"), "LD_LIBRARY_PATH": os.pathsep.join(map(str, cuda))}
    if (run.run(f"wheels of {name}", succeeds, home / "bin/python", "-m", "pip", "install", "--require-hashes", "--no-deps",
                "-r", ROOT / f"scripts/requirements/{lock}.txt") and
            (not torch or run.run(f"build {name}", other_build, "release", name, "-DLOCKSTEP_CUDA=OFF",
                                  f"-DLIBTORCH_ROOT={own}/torch", targets=["lockstep_python"]))):
        run.run(f"program tests of {name}", program.run, name, "tests/e2e/test_python_backend.py", build=folder, env=env)


def with_types(source, name):
    """The installed headers and the library of that source, built with debug information, or None."""
    folder, without = ROOT / "build" / name, [f"-DLOCKSTEP_{part}=OFF" for part in ("TESTS", "COURSE", "CUDA")]
    if (other_build("release", name, *without, "-DCMAKE_CXX_FLAGS=-g", source=source, targets=["lockstep"]) and
            succeeds("cmake", "--install", folder, "--prefix", folder / "prefix", "--component", "Headers", stdout=sys.stderr)):
        return folder / "prefix/include", folder / "lib" / os.readlink(folder / "lib/liblockstep.so")
    return None


def public_symbols(headers, library):
    """What the library exports, inline functions apart, by names that all occur in its installed headers."""
    words = {word for header in headers.rglob("*.h") for word in re.findall(r"\w+", header.read_text())}
    listed = subprocess.run(["nm", "-D", "--defined-only", "-P", library], capture_output=True, text=True, check=True).stdout
    for symbol, rest in re.findall(r"^(_Z(?:T[VIS])?NK?8lockstep(\w+)) [^W]", listed, re.M):
        names = []
        while length := re.match(r"\d+", rest):
            end = length.end() + int(length[0])
            names, rest = [*names, rest[length.end():end]], rest[end:]
        if words.issuperset(names):
            yield symbol


def keeps_abi(tag):
    """Whether programs that were linked to the library of that tag run with this one (docs/reference/versions.md)."""
    source, public = ROOT / "build/abi-source", ROOT / "build/abi-public"
    shutil.rmtree(source, ignore_errors=True)
    source.mkdir(parents=True)
    (source / ".deps").symlink_to(ROOT / ".deps")
    old = succeeds("sh", "-c", f"git archive {tag} | tar -x -C '{source}'", cwd=ROOT) and with_types(source, "abi-old")
    new = old and with_types(ROOT, "abi-new")
    if not new or new[1].name != old[1].name:  # another name is another ABI
        return bool(new)
    symbols = "|".join(public_symbols(*old))
    public.write_text("".join(f"[suppress_{kind}]\n  drop = yes\n  symbol_name_not_regexp = ^({symbols})$\n" for kind in ("function", "variable")))
    return succeeds("abidiff", "--no-added-syms", "--fail-no-debug-info", "--suppr", public, "--hd1", old[0], "--hd2", new[0], old[1], new[1])


def run(run):
    clang = "clang++" if shutil.which("clang++") else "clang++-14"
    run.run_where(clang, "build with clang", other_build, "release", "clang", f"-DCMAKE_CXX_COMPILER={clang}", "-DLOCKSTEP_TESTS=OFF")
    if tags := changes.git("tag", "--list", "v*", "--merged", "HEAD", "--sort=-version:refname"):
        run.run_where("abidiff", f"ABI of {tags[0]}", keeps_abi, tags[0])
    else:
        run.skip("no version has a tag, so there is no ABI to compare with")
    run.run("long campaigns", program.run, "full", "--record", marks="full")
    run.run("record of the campaigns of faults", succeeds, PYTHON, ROOT / "scripts/docs")
    for version in OTHERS:
        try_libtorch(run, version)
    for version, torch in PYTHONS.items():
        try_python(run, version, torch)
    env = {**os.environ, "TEST_MPIEXEC": shutil.which("mpirun.mpich") or ""}
    run.run_where("mpirun.mpich", "program tests under MPICH", lambda: program.run("mpich", env=env, marks="mpi"))
    try_build(run, "asan", "asan", ["-DLOCKSTEP_CUDA=OFF"], about(WORTH_SANITIZING, ["scale", "consumer"]), SANITIZED)
