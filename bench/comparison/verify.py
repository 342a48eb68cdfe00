"""Are the results right? Losses equal where that is promised; what is wrong is said in words."""

import math


def difference(one, other, tolerance=0, last=None):
    """'' where two {step: loss} agree at every step that both have, else the first step where they do not."""
    common = [step for step in one if step in other and (last is None or int(step) <= last)]
    if not common:
        return "no step in common"
    for step in sorted(common, key=int):
        if not (math.isfinite(one[step]) and abs(one[step] - other[step]) <= tolerance):  # a NaN is never right
            return f"step {step}: {one[step]!r} against {other[step]!r}"
    return ""


class Losses:
    """The losses of each contestant: the same in every round, and equal to another's where that is promised."""

    def __init__(self, promises):
        self.promises, self.seen, self.wrong, self.right = promises, {}, [], []

    def add(self, name, losses):
        first = self.seen.setdefault(name, losses)
        if problem := difference(first, losses):
            self.wrong.append(f"{name}: another round had other losses: {problem}")

    def compare(self):
        """Once all have run."""
        for one, other, tolerance, last in self.promises:
            if one in self.seen and other in self.seen:
                problem = difference(self.seen[one], self.seen[other], tolerance, last)
                steps = len(self.seen[one].keys() & self.seen[other].keys())
                kind = f"within {tolerance:g}" if tolerance else "bit for bit"
                if problem:
                    self.wrong.append(f"{one} and {other} should have the same losses {kind}: {problem}")
                else:
                    self.right.append(f"{one} and {other}: {steps} losses, {kind}")
