"""Builds the static site of the course and the docs: plain files, to be opened from a folder or put on any web server.

    python3 scripts/site [--out DIR]    into DIR (default build/site); 1 where a page has anything to warn of

What it needs is in .deps/site: scripts/bootstrap --tests brings it.
"""

import argparse
import os
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
PACKAGES = ROOT / ".deps/site"
OWN = ROOT / ".deps/python/bin/python3"
PYTHON = OWN if OWN.exists() else sys.executable  # the one that the packages were chosen for


def build(out):
    """Sphinx's exit status."""
    # -T tells where a fault of ours is, -W and -n make every warning and every unknown name one
    words = ["-b", "html", "-W", "--keep-going", "-n", "-T", "-q", "-c", HERE,
             "-d", out.with_name(out.name + ".cache"), ROOT, out]
    paths = os.pathsep.join(map(str, (PACKAGES, HERE)))
    return subprocess.run([PYTHON, "-B", "-m", "sphinx", *words], env={**os.environ, "PYTHONPATH": paths}).returncode


def main():
    options = argparse.ArgumentParser(prog="scripts/site", description=__doc__.partition("\n")[0])
    options.add_argument("--out", type=pathlib.Path, default=ROOT / "build/site", help="the folder to write")
    out = options.parse_args().out.resolve()
    if not (PACKAGES / "sphinx").is_dir():
        print("error: the packages that make the site are not there\n  scripts/bootstrap --tests --no-build brings them",
              file=sys.stderr)
        return 1
    status = build(out)
    if status == 0:
        print(f"{out}/index.html")
    return status


sys.exit(main())
