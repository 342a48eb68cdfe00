"""run.py [ROUNDS [WORKERS]]: the folder task's loader beside torchvision's ImageFolder and DataLoader, in turn: images a second.

128 JPEG images of 500 x 375, scaled and cut to 224 x 224 and normalised, with as many workers on both sides (1 unless given).
Verified: all floats are the same. The ratio is that of the medians.
"""

import hashlib
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

os.environ["OMP_NUM_THREADS"] = "1"
ROOT = pathlib.Path(__file__).resolve().parents[2]
BENCH = pathlib.Path(os.environ.get("LOCKSTEP_BUILD", ROOT / "build/release")) / "bin/bench_images"
IMAGES, SIZE, BATCH = 128, 224, 32

import numpy  # noqa: E402
import torch  # noqa: E402
from PIL import Image  # noqa: E402
from torchvision import datasets, transforms  # noqa: E402


def write_images(folder):
    """Smooth with some noise, about as large as a photo's JPEG."""
    draw = numpy.random.default_rng(0)
    for number in range(IMAGES):
        coarse = Image.fromarray(draw.integers(0, 256, (12, 16, 3), dtype=numpy.uint8)).resize((500, 375), Image.BICUBIC)
        pixels = numpy.asarray(coarse) + draw.normal(0, 12, (375, 500, 1))
        path = folder / f"class{number % 4}" / f"{number:04}.jpg"
        path.parent.mkdir(exist_ok=True)
        Image.fromarray(pixels.clip(0, 255).astype(numpy.uint8)).save(path, quality=85)


class Theirs:
    def __init__(self, folder, workers):
        look = transforms.Compose([transforms.Resize(SIZE), transforms.CenterCrop(SIZE), transforms.ToTensor(),
                                   transforms.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))])
        self.loader = torch.utils.data.DataLoader(datasets.ImageFolder(folder, look), batch_size=BATCH, num_workers=workers,
                                                  persistent_workers=workers > 0)
        total = hashlib.sha256()
        for x, _ in self.loader:
            total.update(x.numpy().tobytes())
        self.sha256 = total.hexdigest()

    def seconds(self):
        begin = time.perf_counter()
        for _ in self.loader:
            pass
        return time.perf_counter() - begin


def ours(folder, workers):
    return json.loads(subprocess.run([BENCH, folder, str(SIZE), str(workers), "1"], check=True, capture_output=True, text=True).stdout)


def main():
    rounds, workers = (int(word) for word in (sys.argv[1:] + ["7", "1"][len(sys.argv) - 1:]))
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch)
        write_images(folder)
        theirs = Theirs(folder, workers)
        times = {"lockstep": [], "torchvision": []}
        for _ in range(rounds):
            result = ours(folder, workers)
            if result["sha256"] != theirs.sha256:
                sys.exit("error: the two do not read the same floats")
            times["lockstep"] += result["seconds"]
            times["torchvision"].append(theirs.seconds())
    medians = {name: statistics.median(seconds) for name, seconds in times.items()}
    for name, median in medians.items():
        print(f"{name:12} {IMAGES / median:8.0f} images/s   {', '.join(f'{second:.2f}' for second in times[name])} s")
    print(f"lockstep reads {medians['torchvision'] / medians['lockstep']:.2f} times as fast; all floats are the same")


main()
