"""Which tests a run takes, in which order, and what they have cost before."""

import functools
import json
import pathlib
import re

HERE = pathlib.Path(__file__).resolve().parent

UNKNOWN = 2.0  # seconds that a test is taken to cost before it was ever run


@functools.cache
def shares_a_setup(name):
    """Does this test file have, or import, a fixture for all of its tests? Then one worker takes all of them."""
    text = (HERE / name).read_text()
    kits = re.findall(r"^from (\w+_kit) import", text, re.M)
    return any('scope="module"' in each for each in [text, *((HERE / f"{kit}.py").read_text() for kit in kits)])


def group_of(nodeid):
    """What is dealt to a worker in one piece: a test, or a file whose tests share a set-up."""
    file = nodeid.partition("::")[0]
    return file if shares_a_setup(pathlib.PurePath(file).name) else nodeid


def is_about(item, parts, files):
    marked = {part for mark in item.iter_markers("about") for part in mark.args}
    return bool(marked & set(parts)) or any(item.nodeid.startswith(f"{name}::") for name in files)


def cost(item, costs):
    return costs.get(item.nodeid, UNKNOWN)


def longest_first(items, costs):
    """By what their groups cost: who deals them to several workers ends with small ones."""
    total = {}
    for item in items:
        group = group_of(item.nodeid)
        total[group] = total.get(group, 0) + cost(item, costs)
    return sorted(items, key=lambda item: (-total[group_of(item.nodeid)], group_of(item.nodeid)))


def within(items, seconds, costs):
    """(the ones that fit, the others): smoke tests first, then the cheapest."""
    def rank(item):
        return not is_about(item, ["every command"], []), cost(item, costs)
    kept = set()
    for item in sorted(items, key=rank):
        seconds -= cost(item, costs)
        if seconds >= 0 or not rank(item)[0]:
            kept.add(item)
    return [item for item in items if item in kept], [item for item in items if item not in kept]


def read(path):
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError):
        return {}


class Costs:
    """{test: seconds}, kept in a file that any number of runs may write."""

    def __init__(self, path):
        self.path, self.new = path, {}

    def known(self):
        return read(self.path)

    def pytest_runtest_logreport(self, report):
        self.new[report.nodeid] = self.new.get(report.nodeid, 0) + report.duration

    def write(self):
        if self.new and self.path.parent.is_dir():
            whole = self.path.with_suffix(f".{id(self)}")
            whole.write_text(json.dumps({**read(self.path), **{name: round(t, 2) for name, t in self.new.items()}}, indent=0))
            whole.replace(self.path)
