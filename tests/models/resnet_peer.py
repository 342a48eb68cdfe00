"""torchvision's resnet18, seeded: raw bytes of its state_dict, its output, and its state_dict after a step of SGD.

resnet_peer.py bits     to standard output
resnet_peer.py FOLDER   weights.pt for 5 classes, and old.pt, which has no counters
"""
import sys

import torch
from torchvision.models import resnet18

torch.set_num_threads(1)
torch.manual_seed(7)
model = resnet18(num_classes=5)


def write(state):
    for tensor in state.values():
        sys.stdout.buffer.write(tensor.detach().contiguous().numpy().tobytes())


if sys.argv[1] != "bits":
    torch.save(model.state_dict(), f"{sys.argv[1]}/weights.pt")
    torch.save({name: tensor for name, tensor in model.state_dict().items() if "num_batches" not in name}, f"{sys.argv[1]}/old.pt")
    sys.exit()
write(model.state_dict())
images, labels = torch.randn(4, 3, 64, 64), torch.tensor([0, 4, 2, 2])
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
output = model(images)
write({"output": output})
torch.nn.functional.cross_entropy(output, labels).backward()
optimizer.step()
write(model.state_dict())
write({"evaluated": model.eval()(images)})
