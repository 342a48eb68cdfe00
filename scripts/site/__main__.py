"""Builds the static site of the course and the docs: plain files, to be opened from a folder or put on any web server.

    python3 scripts/site [--out DIR]    into DIR (default build/site); 1 where a page has anything to warn of

What it needs is in .deps/site; where it is not, scripts/bootstrap --site brings it.
"""

import argparse
import os
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
PACKAGES = ROOT / ".deps/site"


def build(out):
    """Sphinx's exit status."""
    # -T tells where a fault of ours is, -W and -n make every warning and every unknown name one
    words = ["-b", "html", "-W", "--keep-going", "-n", "-T", "-q", "-c", HERE,
             "-d", out.with_name(out.name + ".cache"), ROOT, out]
    paths = os.pathsep.join(map(str, (PACKAGES, HERE)))
    python = ROOT / ".deps/python/bin/python3"  # the packages were chosen for this one
    return subprocess.run([python if python.exists() else sys.executable, "-B", "-m", "sphinx", *words],
                          env={**os.environ, "PYTHONPATH": paths}).returncode


def is_ready():
    """Whether the packages are there, after bringing them where they were not."""
    there = PACKAGES / "sphinx"
    if there.is_dir() or (subprocess.run([ROOT / "scripts/bootstrap", "--site"]).returncode == 0 and there.is_dir()):
        return True
    print("error: the packages that build the site could not be installed\n"
          "  hint: without a network, run scripts/bootstrap --site --wheelhouse DIR", file=sys.stderr)
    return False


def main():
    options = argparse.ArgumentParser(prog="scripts/site", description=__doc__.partition("\n")[0])
    options.add_argument("--out", type=pathlib.Path, default=ROOT / "build/site", help="the folder to write")
    out = options.parse_args().out.resolve()
    if not is_ready():
        return 1
    if (status := build(out)) == 0:
        print(f"{out}/index.html")
    return status


sys.exit(main())
