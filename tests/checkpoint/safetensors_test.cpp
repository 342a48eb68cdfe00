#include "lockstep/checkpoint/safetensors.h"

#include <gtest/gtest.h>

#include "lockstep/base/error.h"
#include "temp.h"

namespace lockstep {
namespace {

using test::TempFolder;

std::string file_with(const std::string& header, const std::string& data) {
  std::string text(8, '\0');
  const uint64_t size = header.size();
  std::memcpy(text.data(), &size, sizeof size);
  return text + header + data;
}

TEST(Safetensors, RefusesWhatIsWrong) {
  const std::string entry = R"("dtype":"F32","shape":[2],"data_offsets")";
  const struct {
    const char* why;
    std::string file;
  } cases[] = {
      {"too short", "abc"},
      {"header beyond the file", file_with("{}", "").replace(0, 1, "\x7f")},
      {"no JSON", file_with("{nonsense}", "")},
      {"no object", file_with("[]", "")},
      {"unknown dtype", file_with(R"({"a":{"dtype":"F7","shape":[2],"data_offsets":[0,8]}})", "01234567")},
      {"missing shape", file_with(R"({"a":{"dtype":"F32","data_offsets":[0,8]}})", "01234567")},
      {"negative shape", file_with(R"({"a":{"dtype":"F32","shape":[-2],"data_offsets":[0,8]}})", "01234567")},
      {"too few bytes", file_with("{\"a\":{" + entry + ":[0,4]}}", "0123")},
      {"too many bytes", file_with("{\"a\":{" + entry + ":[0,12]}}", "012345678901")},
      {"beyond the file", file_with("{\"a\":{" + entry + ":[0,8]}}", "0123")},
      {"a gap", file_with("{\"a\":{" + entry + ":[4,12]}}", "012345678901")},
      {"bytes left over", file_with("{\"a\":{" + entry + ":[0,8]}}", "0123456789")},
      {"overlap", file_with("{\"a\":{" + entry + ":[0,8]},\"b\":{" + entry + ":[4,12]}}", "012345678901")},
      {"backwards", file_with("{\"a\":{" + entry + ":[8,0]}}", "01234567")},
      {"overflow",
       file_with(R"({"a":{"dtype":"F32","shape":[281474976710656,281474976710656],"data_offsets":[0,8]}})",
                 "01234567")},
  };
  const TempFolder folder;
  for (const auto& [why, file] : cases)
    EXPECT_THROW(read_safetensors(folder.write("a", file)), InputError) << why;
  EXPECT_THROW(write_safetensors(folder / "a", make_dict({{"n", int64_t{1}}})), Error) << "a number";
  EXPECT_NO_THROW(
      read_safetensors(folder.write("a", file_with("{\"a\":{" + entry + ":[0,8]}}", "01234567"))));
}

TEST(Safetensors, OursCarryASealAndOthersNone) {
  const TempFolder folder;
  const auto path = folder / "a";
  write_safetensors(path, make_dict({{"a", at::arange(6, at::kFloat)}, {"b", at::ones({0})}}),
                    {{"format", "pt"}});
  EXPECT_EQ(open_checkpoint_file(path).checksum, Checksum::whole_file);
  const auto whole = base::read_text(path);
  for (size_t at = 0; at < whole.size(); ++at) {
    auto flipped = whole;
    flipped[at] = static_cast<char>(flipped[at] ^ 4);
    // a flip in the seal's own name leaves a file of somebody else's, which has no checksum
    try {
      EXPECT_EQ(open_checkpoint_file(folder.write("b", flipped)).checksum, Checksum::none) << at;
      EXPECT_LT(at, 40u);
    } catch (const InputError&) {
    }
  }
  const auto foreign = file_with(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", "01234567");
  EXPECT_EQ(open_checkpoint_file(folder.write("c", foreign)).checksum, Checksum::none);
}

}  // namespace
}  // namespace lockstep
