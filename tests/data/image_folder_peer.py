"""Images of every kind, and what Pillow and torchvision make of them.

image_folder_peer.py pixels FOLDER   writes them; to standard output, in the order of their names: height, width (int32), RGB bytes
image_folder_peer.py scaled          of a noise image scaled and cut in several ways: RGB bytes
image_folder_peer.py folder FOLDER   of torchvision's ImageFolder over FOLDER: a line a file, then the samples as float32
"""
import io
import pathlib
import struct
import sys
import zlib

import numpy
from PIL import Image, PngImagePlugin

NOISE = numpy.random.default_rng(0)
# image, wanted: height and width
# from 13 on Pillow scales some of the tall ones down before it goes across
SIZES = [((200, 30), (24, 24)), ((90, 30), (60, 12)), ((301, 20), (24, 35)), ((120, 30), (20, 29)), ((60, 200), (24, 24)),
         ((40, 60), (24, 24)), ((61, 37), (32, 32)), ((17, 90), (24, 31)), ((8, 8), (21, 13)), ((33, 33), (33, 33)), ((64, 48), (64, 20)),
         ((1, 1), (3, 5)), ((1, 50), (4, 4)), ((301, 203), (7, 224)), ((100, 101), (99, 100))]
# top, left, height, width of the 40 x 60 image, each to 24 x 18
PARTS = [(0, 0, 40, 60), (1, 30, 39, 19), (2, 7, 37, 12), (5, 3, 30, 9), (3, 5, 20, 31), (39, 59, 1, 1), (10, 0, 24, 18), (0, 20, 7, 40)]


def noise(height, width, channels=3):
    """Smooth in places, so that a JPEG of it is none of nothing but ringing."""
    ramp = numpy.add.outer(numpy.arange(height) * 3, numpy.arange(width) * 2)[:, :, None] + numpy.arange(channels) * 40
    return ((ramp + NOISE.integers(0, 60, (height, width, channels))) % 256).astype(numpy.uint8).squeeze()


def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def deep_png(colour, channels, values):
    """A row of 16 bits a channel."""
    row = b"\0" + b"".join(struct.pack(">H", value) * channels for value in values)
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", len(values), 1, 16, colour, 0, 0, 0))
            + chunk(b"IDAT", zlib.compress(row)) + chunk(b"IEND", b""))


def files():
    """Name and bytes of each."""
    def saved(image, kind, **options):
        into = io.BytesIO()
        image.save(into, kind, **options)
        return into.getvalue()
    rgb, grey = Image.fromarray(noise(37, 53)), Image.fromarray(noise(20, 31, 1))
    turned = Image.Exif()
    turned[0x0112] = 6
    gamma = PngImagePlugin.PngInfo()
    gamma.add(b"gAMA", struct.pack(">I", 100000))
    for subsampling in (0, 1, 2):
        yield f"jpeg-{subsampling}.jpg", saved(rgb, "JPEG", subsampling=subsampling)
        yield f"jpeg-progressive-{subsampling}.jpg", saved(rgb, "JPEG", subsampling=subsampling, progressive=True, quality=90)
    yield "jpeg-rough.JPG", saved(rgb, "JPEG", quality=10, optimize=True)
    yield "jpeg-restarts.jpg", saved(rgb, "JPEG", restart_marker_blocks=2)
    yield "jpeg-grey.jpeg", saved(grey, "JPEG")
    yield "jpeg-cmyk.jpg", saved(Image.fromarray(noise(16, 24, 4), "CMYK"), "JPEG")
    yield "jpeg-turned.jpg", saved(rgb, "JPEG", exif=turned)
    yield "jpeg-long-header.jpg", saved(rgb, "JPEG", icc_profile=bytes(100_000))
    yield "jpeg-one-pixel.jpg", saved(Image.fromarray(noise(1, 1).reshape(1, 1, 3)), "JPEG")
    yield "jpeg-and-more.jpg", saved(rgb, "JPEG") + b"behind the end"
    yield "png-rgb.png", saved(rgb, "PNG")
    yield "png-gamma.png", saved(rgb, "PNG", pnginfo=gamma)
    yield "png-rgba.png", saved(Image.fromarray(noise(9, 14, 4), "RGBA"), "PNG")
    yield "png-grey.png", saved(grey, "PNG")
    yield "png-grey-alpha.png", saved(Image.fromarray(noise(9, 14, 2), "LA"), "PNG")
    yield "png-palette.png", saved(rgb.quantize(17), "PNG")
    yield "png-palette-clear.png", saved(rgb.quantize(200), "PNG", transparency=bytes(range(200)))
    yield "png-clear-colour.png", saved(rgb, "PNG", transparency=(1, 2, 3))
    yield "png-one-bit.png", saved(grey.convert("1"), "PNG")
    yield "png-deep-rgb.png", deep_png(2, 3, DEEP)
    yield "png-deep-rgba.png", deep_png(6, 4, DEEP)
    yield "png-deep-grey.png", deep_png(0, 1, DEEP)
    yield "really-a-jpeg.png", saved(rgb, "JPEG")


DEEP = [0, 1, 127, 128, 255, 256, 257, 1000, 32767, 32768, 40000, 65279, 65280, 65535]


def write_pixels(folder):
    for name, content in sorted(files()):
        (folder / name).write_bytes(content)
        pixels = numpy.array(Image.open(io.BytesIO(content)).convert("RGB"))
        if name == "png-deep-grey.png":  # Pillow makes white of all from 255 on
            pixels = numpy.repeat(numpy.array([[value >> 8 for value in DEEP]], numpy.uint8)[:, :, None], 3, axis=2)
        sys.stdout.buffer.write(struct.pack("ii", *pixels.shape[:2]) + pixels.tobytes())


def write_scaled():
    from torchvision.transforms import functional
    for (height, width), (rows, columns) in SIZES:
        image = Image.fromarray(((numpy.arange(height * width * 3) * 7919 % 65521) % 256).astype(numpy.uint8).reshape(height, width, 3))
        if rows == columns:
            scaled = functional.resize(image, rows)
        else:  # by the side that needs more
            high = rows * width >= columns * height
            scaled = functional.resize(image, [rows, rows * width // height] if high else [columns * height // width, columns])
        sys.stdout.buffer.write(functional.center_crop(scaled, [rows, columns]).tobytes())
    image = Image.fromarray(((numpy.arange(40 * 60 * 3) * 7919 % 65521) % 256).astype(numpy.uint8).reshape(40, 60, 3))
    for top, left, height, width in PARTS:
        sys.stdout.buffer.write(functional.resized_crop(image, top, left, height, width, [24, 18]).tobytes())


def write_folder(folder):
    from torchvision import datasets, transforms
    look = transforms.Compose([transforms.Resize(24), transforms.CenterCrop(24), transforms.ToTensor(),
                               transforms.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))])
    found = datasets.ImageFolder(folder, look)
    for path, label in found.samples:
        sys.stdout.buffer.write(f"{pathlib.Path(path).relative_to(folder)} {label}\n".encode())
    for image, _ in found:
        sys.stdout.buffer.write(image.numpy().tobytes())


if sys.argv[1] == "scaled":
    write_scaled()
else:
    {"pixels": write_pixels, "folder": write_folder}[sys.argv[1]](pathlib.Path(sys.argv[2]))
