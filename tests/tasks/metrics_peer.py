"""AUC and F1 by their definitions, in plain Python over the scores that the test gives: label score, a line each."""
import sys

pairs = [(int(label), float(score)) for label, score in (line.split() for line in sys.stdin)]
positive = [score for label, score in pairs if label]
negative = [score for label, score in pairs if not label]
wins = sum((p > n) + 0.5 * (p == n) for p in positive for n in negative)
hit = sum(score > 0 for score in positive)
false = sum(score > 0 for score in negative)
print(repr(2 * hit / (2 * hit + false + len(positive) - hit)), repr(wins / (len(positive) * len(negative))))
