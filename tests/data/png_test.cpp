#include "lockstep/data/pixels/image_file.h"

#include <ATen/ATen.h>

#include "lockstep/base/error.h"
#include "peer.h"

namespace lockstep {
namespace {

// A ramp as PIL writes it, grey and in colour, beside what PIL reads back from it.
constexpr const char* kWriter =
    " -c 'import sys, numpy; from PIL import Image; d = sys.argv[1]; "
    "a = numpy.arange(768, dtype=numpy.uint32).astype(numpy.uint8).reshape(16, 16, 3); "
    "Image.fromarray(a[:, :, 0]).save(d + \"/grey.png\"); Image.fromarray(a).save(d + \"/rgb.png\"); "
    "[sys.stdout.buffer.write(numpy.array(Image.open(d + f)).tobytes()) for f in (\"/grey.png\", "
    "\"/rgb.png\")]' ";

std::string bytes(const at::Tensor& t) {
  const auto flat = t.contiguous();
  return {static_cast<const char*>(flat.const_data_ptr()), flat.nbytes()};
}

TEST(Png, ReadsThePixelsThatPythonReads) {
  LOCKSTEP_PYTHON_OR_SKIP(python, "PIL");
  test::TempFolder folder;
  const auto peer = test::output_of(python + kWriter + folder.path().string());
  at::Tensor grey;
  try {
    grey = data::read_png(folder / "grey.png", 1);
  } catch (const InputError& error) {
    if (std::string(error.what()).find("without libpng") != std::string::npos) GTEST_SKIP() << error.what();
    throw;
  }
  EXPECT_EQ(grey.sizes(), (at::IntArrayRef{1, 1, 16, 16}));
  const auto rgb = data::read_png(folder / "rgb.png", 3);
  EXPECT_EQ(rgb.sizes(), (at::IntArrayRef{1, 3, 16, 16}));
  EXPECT_TRUE(peer == bytes(grey) + bytes(rgb.permute({0, 2, 3, 1})));
  EXPECT_TRUE(data::is_png(folder / "grey.png"));
  EXPECT_THROW(data::is_png(folder / "missing.png"), InputError);
}

}  // namespace
}  // namespace lockstep
