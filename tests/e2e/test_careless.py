"""A rank that goes another way than the others, in a program by the library alone: said in words, by whoever meets it."""

import re

import pytest
from conftest import SOURCE
from examples_kit import build_against

pytestmark = [pytest.mark.about("launch", "comm/watch", "parallel"), pytest.mark.full]  # the program is compiled


@pytest.fixture(scope="module")
def careless(installed, build_dir, tmp_path_factory):
    folder = tmp_path_factory.mktemp("careless")
    build_against(installed, build_dir, SOURCE / "tests/careless", folder)
    return folder / "careless"


@pytest.mark.parametrize("way", ["leaves", "bypasses", "skips"])
def test_it_is_said_in_words_on_every_rank(way, careless, mpirun):
    result = mpirun(2, careless, way, env={"LOCKSTEP_TIMEOUT": 5}, quiet=True)
    assert result.returncode == 1, result.output
    assert "terminate called" not in result.output and "EnforceNotMet" not in result.output
    errors = re.findall(r"error: (.*)", result.output)
    assert errors and all("the ranks' calls differ" in error or "left the group" in error or "timed out" in error
                          for error in errors), result.output
    assert "hint: " in result.output and " died" not in result.output, result.output
    assert not result.left_behind


def test_one_ranks_exception_takes_all_along(careless, mpirun):
    result = mpirun(2, careless, "throws")
    assert result.returncode != 0
    assert result.output.count("rank 1 met a bad row") == 1, result.output
