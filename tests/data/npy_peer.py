"""NumPy's files for npy_test.cpp: good/NAME with the features that NumPy converts to float32 in good/NAME.f32, and bad/WORDS|NAME with words of the error."""
import io
import pathlib
import struct
import sys
import zipfile

import numpy

folder = pathlib.Path(sys.argv[1])
good, bad = folder / "good", folder / "bad"
good.mkdir(), bad.mkdir()


def values_of(dtype):
    if dtype.kind == "b":
        return [False, True] * 3
    if dtype.kind in "iu":
        limits = numpy.iinfo(dtype)
        # the last one is rounded twice by way of double
        return [limits.min, limits.max, 7] + [min(value, limits.max) for value in (2**24 + 1, 2**53 + 1, 2**62 + 2**38 + 1)]
    limits = numpy.finfo(dtype if dtype.itemsize < 8 else numpy.float32)
    return [-0.0, limits.smallest_subnormal, limits.max, limits.min, 1 / 3, 1 + 2.0**-24]


def write(name, save, features):
    with open(good / name, "wb") as file:
        save(file)
    (good / f"{name}.f32").write_bytes(numpy.ascontiguousarray(features).astype(numpy.float32).tobytes())


for code in "b1 i1 i2 i4 i8 u1 u2 u4 u8 f2 f4 f8".split():
    for order in "<>":
        dtype = numpy.dtype(order + code)
        table = numpy.array(values_of(dtype) + [False, True], dtype).reshape(4, 2, order="F")
        table = numpy.hstack([table[:3], numpy.array([[0], [1], [0]], dtype)])
        for version, array in ((1, table), (2, numpy.asfortranarray(table)), (3, table)):
            write(f"{'big' if order == '>' else 'little'}-{code}-{version}.npy",
                  lambda file: numpy.lib.format.write_array(file, array, version=(version, 0)), array[:, :2])
arrays = {"x": numpy.asfortranarray(numpy.arange(6, dtype=">i2").reshape(3, 2)), "age": numpy.array([1.5, 2, 1e-40]),
          "flag": numpy.array([True, False, True]), "y": numpy.array([1, 0, 1])}
features = numpy.column_stack([arrays[name] for name in ("x", "age", "flag")])
write("stored.npz", lambda file: numpy.savez(file, **arrays), features)
write("deflated.npz", lambda file: numpy.savez_compressed(file, **arrays), features)


def array(data=None, header=None, version=1):
    """The bytes of a .npy with that header."""
    header = header or "{'descr': '<f8', 'fortran_order': False, 'shape': (2, 2), }"
    return b"\x93NUMPY" + bytes([version, 0]) + struct.pack("<H", len(header)) + header.encode() + (bytes(32) if data is None else data)


def shaped(shape, descr="'<f8'", order="False"):
    return array(header=f"{{'descr': {descr}, 'fortran_order': {order}, 'shape': {shape}}}")


def saved(value):
    file = io.BytesIO()
    numpy.save(file, value, allow_pickle=True)
    return file.getvalue()


def zipped(**members):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return file.getvalue()


python2 = array(struct.pack("<9d", 7, 1, 0, 7, 1, 1, 7, 1, 0), "{'descr': '<f8', 'fortran_order': False, 'shape': (3L, 3L), }")
write("python2.npy", lambda file: file.write(python2), numpy.array([[7, 1]] * 3))
whole = zipped(**{"x.npy": array()})
size = whole.rindex(b"PK\x01\x02") + 24  # of the unpacked member, in the directory
for name, content in {
        "is empty|empty.npy": b"", "not an array|text.npy": b"a,b\n1,0\n", "promises more than|truncated.npy": array()[:-1], "bytes of data, not 32|longer.npy": array() + b"\0", "|short.npy": array()[:20],
        "version is 9|version.npy": array(version=9), "promises more|huge.npy": shaped("(1099511627776, 2)"), "promises more|overflow.npy": shaped("(4294967296, 4294967296)"),
        "it is empty|no-columns.npy": shaped("(4, 0)"), "it is empty|no-rows.npy": shaped("(0, 9223372036854775807)"), "shape is damaged|negative.npy": shaped("(-2, -2)"),
        "one dimension|vector.npy": shaped("(4,)"), "3 dimensions|cube.npy": shaped("(2, 2, 1)"), "0 dimensions|scalar.npy": saved(numpy.float64(1)),
        "not a dictionary|call.npy": shaped("(2, 2)", "__import__('os')"), "not a dictionary|expression.npy": shaped("(2, 1 + 1)"), "not a dictionary|list.npy": array(header="[1, 2]"),
        "not a dictionary|missing.npy": array(header="{'descr': '<f8', 'shape': (2, 2)}"), "not a dictionary|order.npy": shaped("(2, 2)", order="1"),
        "dtype is|objects.npy": saved(numpy.array([[1, None], [2, 3]], object)), "dtype is|record.npy": saved(numpy.zeros((2, 2), "<f4,<i4")),
        "dtype is|complex.npy": saved(numpy.zeros((2, 2), complex)), "dtype is|texts.npy": saved(numpy.array([["a", "b"]])),
        "dtype is|long.npy": saved(numpy.zeros((2, 2), numpy.longdouble)), "missing|nan.npy": saved(numpy.full((2, 2), numpy.nan)),
        "not finite|inf.npy": saved(numpy.array([[1e39, 0], [0, 1]])), "|none.npz": zipped(), "zip directory|cut.npz": whole[:-30], "zip|not-a-zip.npz": array(),
        "|bomb.npz": zipped(**{"x.npy": array(bytes(32 << 20))}), "not an array of a table|up.npz": zipped(**{"../x.npy": array(), "y.npy": array()}),
        "not an array of a table|folder.npz": zipped(**{"y.npy": array(), "a/x.npy": array()}), "not an array of a table|readme.npz": zipped(**{"x.npy": array(), "readme.txt": b"x"}),
        "|promise.npz": whole[:size] + struct.pack("<I", 0xf0000000) + whole[size + 4:], "|damaged.npz": whole[:60] + bytes([whole[60] ^ 1]) + whole[61:],
        "has 3 rows|lengths.npz": zipped(**{"x.npy": array(), "y.npy": array(bytes(24), "{'descr': '<f8', 'fortran_order': False, 'shape': (3,)}")}),
}.items():
    (bad / name).write_bytes(content)
