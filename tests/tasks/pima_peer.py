"""The Pima rows that C++ chose to train on, treated with numpy: prints the same floats as raw float32.

pima_peer.py FILE ROW...    the rows' numbers; then come all rows not named, treated alike (the evaluation set).
"""
import sys

import numpy

table = numpy.loadtxt(sys.argv[1], delimiter=",")[:, :8]
chosen = numpy.array([int(row) for row in sys.argv[2:]])
rest = numpy.setdiff1d(numpy.arange(len(table)), chosen)
for column in range(1, 6):
    train = table[chosen, column]
    table[table[:, column] == 0, column] = numpy.median(train[train != 0])
table = table.astype(numpy.float32).astype(numpy.float64)
mean, std = table[chosen].mean(axis=0), table[chosen].std(axis=0)
for rows in (chosen, rest):
    sys.stdout.buffer.write(((table[rows] - mean) / std).astype(numpy.float32).tobytes())
