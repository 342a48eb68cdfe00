"""A comparison as text: facts, one table, what was verified, and what is wrong."""

HEAD = ("target", "what", "peer", "median (min to max)", "ours, median (min to max)", "ratio", "firm", "stretch", "verdict")


def number(value):
    if abs(value) >= 1e4:
        return f"{value / 1e3:.1f}k"
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"


def figures(found, unit):
    if not found:
        return "-"
    scale, unit = (1e6, "us") if unit == "s" and found["median"] < 0.1 else (1, unit)
    low, middle, high = (number(scale * found[key]) for key in ("min", "median", "max"))
    return f"{middle} {unit}" + (f" ({low} to {high})" if found["count"] > 1 else "")


def peer_of(row):
    """As a reader knows it: the all-reduce's peers are ways of one job."""
    job, _, what = row["peer"].partition(".")
    return (what if job == "allreduce" else job) or "-"


def wanted(row, key):
    return "-" if row[key] is None else ("≤ " if row["at_most"] else "≥ ") + f"{row[key]:g}"


def cells(row):
    """A row of HEAD's table."""
    ratio = number(row["ratio"]) if "ratio" in row else "-"
    return [row["target"], row["what"], peer_of(row), figures(row.get("peer_figures"), row["unit"]),
            figures(row.get("our_figures"), row["unit"]), ratio, wanted(row, "firm"), wanted(row, "stretch"), row["verdict"]]


def table(rows):
    """Columns of one width each; the last one as long as it likes."""
    wide = [max(len(line[i]) for line in rows) for i in range(len(rows[0]) - 1)]
    return "\n".join("  ".join(f"{cell:<{width}}" for cell, width in zip(line, [*wide, 0])) for line in rows)


def text(record):
    lines = [f"{name:<18}{value}" for name, value in record["facts"].items()]
    lines += ["", table([HEAD, *map(cells, record["rows"])]), ""]
    lines += [f"{row['target']} {row['ours']}: too busy for a verdict ({row['busy']}); measured anyway: {row['reached']}"
              for row in record["rows"] if row.get("busy")]
    lines += [f"right: {what}" for what in record["right"]] or ["nothing was verified"]
    lines += [f"failed: {job}: {why}" for job, why in record["failed"].items()]
    lines += [f"WRONG: {what}" for what in record["wrong"]]
    return "\n".join(lines)
