"""What made line.pt2 and line.eval.pt2, with torch 2.9 or newer: a line with one number to learn.

In training it adds 0.5. So it is another one in training than in evaluation, as a model with dropout is, and no chance is in it.
"""

import torch
from torch import nn


class Line(nn.Module):
    def __init__(self):
        super().__init__()
        self.slope = nn.Parameter(torch.zeros(1))

    def forward(self, x):
        y = self.slope * x
        return y + 0.5 if self.training else y


model, x = Line(), torch.arange(4) / 10
sizes = ({0: torch.export.Dim.AUTO},)  # as many points as you like
torch.export.save(torch.export.export(model.train(), (x,), dynamic_shapes=sizes), "line.pt2")
torch.export.save(torch.export.export(model.eval(), (x,), dynamic_shapes=sizes), "line.eval.pt2")
