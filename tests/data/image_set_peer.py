"""The bytes 0 to 255 through torchvision's ToTensor and Normalize, as raw float32: one channel, then three."""
import sys

import numpy
from torchvision import transforms


def write(image, mean, std):
    transform = transforms.Compose([transforms.ToTensor(), transforms.Normalize(mean, std)])
    sys.stdout.buffer.write(transform(image).numpy().tobytes())


grey = numpy.arange(256, dtype=numpy.uint8).reshape(16, 16, 1)
write(grey, (0.1307,), (0.3081,))
write(numpy.repeat(grey, 3, axis=2), (0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
