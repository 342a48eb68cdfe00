"""What the README shows first works as it is printed."""

import re

import pytest

from conftest import SOURCE
from docs_kit import blocks_of
from process_kit import LONG_PATIENCE

pytestmark = pytest.mark.about("scripts", "docs")

COMMANDS, OUTPUT = list(blocks_of(SOURCE / "README.md"))[:2]
SCRIPTS = re.findall(r"^scripts/\w+", COMMANDS.text, re.M)
MEASURED = re.compile(r"\d+\.\d+s|\d+ samples/s")  # differs from machine to machine
LOSS = re.compile(r"\d\.\d{4}")                    # differs in the last digits between kinds of processors


def losses(text):
    return [float(number) for number in LOSS.findall(MEASURED.sub("", text))]


def frame(text):
    """The lines without measured numbers, and counts of classes only as far as the README shows them."""
    return [LOSS.sub("N", MEASURED.sub("N", re.sub(r"(2: \d+ \().*", r"\1", line))) for line in text.splitlines()]


def test_the_first_command_of_the_readme_prints_what_the_readme_shows(run, build_dir, tmp_path):
    if build_dir != SOURCE / "build/release":
        pytest.skip("scripts/run uses build/release")
    printed = run("bash", "-c", f"'{SOURCE / SCRIPTS[0]}' --here 2>&1", cwd=tmp_path, timeout=LONG_PATIENCE, check=True).stdout
    shown = [line for line in frame(OUTPUT.text) if line != "..."]
    assert [line for line in frame(printed) if line in shown] == shown, printed
    assert losses(printed) == pytest.approx(losses(OUTPUT.text), abs=0.005)


def test_ci_runs_the_second_command_of_the_readme_in_a_fresh_clone():
    assert (SOURCE / ".ci/run").read_text().splitlines()[-1] == f"exec {SCRIPTS[1]}"
