"""From figures to rows: medians, their ratio, and whether it reached what was wanted, where that can be said."""

import statistics

import requirements

MOST_OTHERS, MOST_STEAL, MOST_SPREAD = 0.05, 0.02, 0.20


def summary(values):
    return {"min": min(values), "median": statistics.median(values), "max": max(values), "count": len(values)}


def spread(middles):
    return (max(middles) - min(middles)) / statistics.median(middles)


def trouble(target, results):
    """Why the machine was too busy for a verdict on this target, or ''."""
    runs = [run for run in results.runs if run["job"] in target.jobs]
    reasons = []
    for what, most, text in (("others", MOST_OTHERS, "other processes used {:.0%} of the cores"),
                             ("steal", MOST_STEAL, "other machines used {:.0%} of them")):
        middle = statistics.median(run[what] for run in runs)
        if middle > most:
            reasons.append(text.format(middle))
    for figure in filter(None, (target.peer, target.ours)):
        middles = [run["middle"][figure] for run in runs if figure in run["middle"]]
        seen, where = (middles, "from run to run") if len(middles) > 1 else (results.figures[figure], "within its run")
        if spread(seen) > MOST_SPREAD:
            reasons.append(f"{figure} differed by {spread(seen):.0%} {where}")
    return "; ".join(reasons)


def word(target, ratio):
    if target.firm is None:
        return "shown only"
    if target.stretch is not None and target.reached(ratio, target.stretch):
        return "stretch met"
    return "met" if target.reached(ratio, target.firm) else "not met"


def why_not(target, results, place):
    """Why there is no figure for a target, or ''."""
    if reason := requirements.missing(target, place):
        return f"does not apply: {reason}"
    for job in target.jobs:
        if job in results.failed:
            return f"{job} failed"
        if job in results.late and not any(f.startswith(f"{job}.") for f in results.figures):
            return f"not measured: {job}: {results.late[job]}"
    absent = [figure for figure in (target.peer, target.ours) if figure and figure not in results.figures]
    return f"not measured: {absent[0]} is not in what was printed" if absent else ""


def beyond_reach(target, results):
    """Why nothing could reach the target here, as far as that was measured, or ''."""
    if target.limit not in results.figures:
        return ""
    peer, most = (summary(results.figures[figure])["median"] for figure in (target.peer, target.limit))
    ratio = target.ratio(peer, most)
    return "" if target.reached(ratio, target.firm) else f"does not apply: two that share nothing reach {ratio:.2f} here"


def row(target, results, place):
    """What the table, the JSON and the page show of a target."""
    shown = {"target": target.name, "what": target.what, "peer": target.peer, "ours": target.ours, "unit": target.unit,
             "at_most": target.at_most, "firm": target.firm, "stretch": target.stretch}
    if reason := why_not(target, results, place):
        return shown | {"verdict": reason}
    ours = summary(results.figures[target.ours])
    peer = summary(results.figures[target.peer]) if target.peer else None
    ratio = target.ratio(peer["median"] if peer else 1, ours["median"])
    busy = "" if target.unit in ("calls", "MB") else trouble(target, results)  # time alone is disturbed by others
    reached = word(target, ratio)
    if reached == "not met":
        reached = beyond_reach(target, results) or reached
    return shown | {"peer_figures": peer, "our_figures": ours, "ratio": ratio, "reached": reached, "busy": busy,
                    "verdict": "no verdict: busy" if busy and target.firm is not None else reached}


def rows(targets, results, place):
    return [row(target, results, place) for target in targets]
