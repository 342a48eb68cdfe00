"""Past comparisons beside each other: a column a run, a row a target."""

import json

import page
import show


class Unreadable(Exception):
    """A file among the results is none of ours."""


def check(record):
    """Draws a record beside itself, so that a ratio has a plot, too."""
    if not isinstance(record["when"], str):
        raise TypeError("its time is not a text")
    text([record, record]), html([record, record])


def read(folder):
    """All records of a folder, the oldest first."""
    found = []
    for file in sorted(folder.glob("*.json")):
        try:
            found.append(json.loads(file.read_text()))
            check(found[-1])
        except Exception as error:  # a stranger's file may make anything of our tables
            raise Unreadable(f"{file}: not a comparison of lockstep ({error!r})") from error
    return sorted(found, key=lambda record: record["when"])


def key(row):
    return row["target"], row["what"], show.peer_of(row)


def cell(row):
    return show.number(row["ratio"]) + (" busy" if row.get("busy") else "") if "ratio" in row else "-"


def table(records):
    keys = list(dict.fromkeys(key(row) for record in records for row in record["rows"]))
    by_run = [{key(row): cell(row) for row in record["rows"]} for record in records]
    head = ("target", "what", "peer", *(record["when"] + ("*" if record["wrong"] else "") for record in records))
    return [head] + [(*k, *(run.get(k, "-") for run in by_run)) for k in keys]


def notes(records):
    cpus = list(dict.fromkeys(record["facts"]["cpu"] for record in records))
    said = [f"{record['when']}: {record['facts']['lockstep']}" for record in records]
    if len(cpus) > 1:
        said += ["the runs are of different machines: " + "; ".join(cpus)]
    if any(record["wrong"] for record in records):
        said += ["* a result was wrong in this run"]
    return said


def charts(records):
    """A line for each target with a ratio in two runs or more."""
    ratios = {}
    for number, record in enumerate(records, 1):
        for row in record["rows"]:
            if row.get("ratio", 0) > 0 and row["peer"]:
                ratios.setdefault(key(row), []).append((number, row["ratio"]))
    return [{"chart": {"title": f"{name}: {what} / {peer}", "x_label": "run", "y_label": "ratio", "log_x": False, "log_y": False,
                       "series": [{"name": "", "x": [number for number, _ in found], "y": [ratio for _, ratio in found]}]}}
            for (name, what, peer), found in ratios.items() if len(found) > 1]


def text(records):
    return "\n".join([show.table(table(records)), "", *notes(records)])


def html(records):
    return page.page("lockstep and its peers, run by run",
                     [("Ratios", [{"table": table(records)}, *page.lines(notes(records))]), ("Plots", charts(records))], text(records))
