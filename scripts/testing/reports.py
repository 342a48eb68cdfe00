"""What the JUnit files of a run say: how many tests, and what each has cost."""

import xml.etree.ElementTree as xml

from paths import REPORTS


def suites():
    for report in REPORTS.glob("*.xml"):
        root = xml.parse(report).getroot()
        yield from [root] if root.tag == "testsuite" else root.iter("testsuite")


def count(*names):
    return sum(int(suite.get(name, 0)) for suite in suites() for name in names)


def name_of(case):
    return (case.get("classname", "") + "." + case.get("name", "")).lstrip(".")


def failures():
    """The tests that failed, each with the beginning of its report."""
    for suite in suites():
        for case in suite.iter("testcase"):
            for reason in [*case.findall("failure"), *case.findall("error")][:1]:
                said = "; ".join(reason.get("message", "").strip().splitlines()[:3])
                yield f"{name_of(case)}: {said[:200]}" if said else name_of(case)


def costs():
    """{test: seconds} of this run. A test that shares a set-up with others bears it where it came first."""
    return {name_of(case): float(case.get("time", 0))
            for suite in suites() for case in suite.iter("testcase")}


def slowest(number):
    rows = sorted(costs().items(), key=lambda row: -row[1])
    return [f"{seconds:8.1f} s  {name}" for name, seconds in rows[:number]]

