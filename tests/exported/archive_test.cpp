// Files of torch.export.save, whole and damaged.
#include "lockstep/exported/archive.h"

#include <caffe2/serialize/inline_container.h>
#include <gtest/gtest.h>

#include <fstream>
#include <map>

#include "lockstep/base/files/file.h"
#include "lockstep/exported/program.h"
#include "refusal.h"
#include "temp_folder.h"

namespace lockstep::exported {
namespace {

using Records = std::map<std::string, std::string>;

const Records kWhole = {{"archive_format", "pt2"}, {"archive_version", "0"}, {"models/model.json", "{}"}};

struct ExportedArchive : testing::Test {
  std::string written(const Records& records) {
    const auto path = folder / "model.pt2";
    caffe2::serialize::PyTorchStreamWriter writer(path);
    for (const auto& [name, text] : records) writer.writeRecord(name, text.data(), text.size());
    writer.writeEndOfFile();
    return path;
  }
  Records with(Records records, const std::string& name, const std::string& text) {
    records[name] = text;
    return records;
  }
  void refused(const std::string& path, const std::string& words) {
    EXPECT_TRUE(test::has(test::error_from([&] { read_program(path); }).what(), words));
  }
  test::TempFolder folder;
};

TEST_F(ExportedArchive, ReadsRecordsWithoutTheFolderBeforeThem) {
  const Archive archive(written(with(kWhole, "data/weights/weight_0", "abc")));
  EXPECT_TRUE(archive.zip().has("data/weights/weight_0"));
  EXPECT_EQ(archive.zip().bytes("data/weights/weight_0").size(), 3U);
  EXPECT_TRUE(archive.json("models/model.json").empty());
  EXPECT_THROW(archive.zip().bytes("data/weights/weight_1"), InputError);
}

TEST_F(ExportedArchive, SeesAFlippedBit) {
  const auto path = written(with(kWhole, "models/model.json", R"({"a": "marked"})"));
  auto bytes = base::read_text(path);
  bytes[bytes.find("marked")] ^= 1;
  std::ofstream(path, std::ios::binary) << bytes;
  refused(path, "models/model.json is damaged in the archive");
}

// Weights that reach beyond their record, or are no plain tensors.
TEST_F(ExportedArchive, ChecksWhereWeightsLie) {
  const auto model = base::read_text("tests/fuzz/seeds/exported/cond.json");
  const Json whole = {{"path_name", "weight_0"},
                      {"is_param", true},
                      {"use_pickle", false},
                      {"tensor_meta",
                       {{"dtype", 7},
                        {"layout", 7},
                        {"requires_grad", true},
                        {"storage_offset", {{"as_int", 0}}},
                        {"sizes", {{{"as_int", 2}}}},
                        {"strides", {{{"as_int", 1}}}}}}};
  const auto with_weight = [&](const char* place, const Json& value) {
    auto entry = whole;
    if (*place) entry[Json::json_pointer(place)] = value;
    auto records = with(kWhole, "models/model.json", model);
    records["data/weights/weight_0"] = std::string(8, '\0');
    records["data/weights/model_weights_config.json"] = Json{{"config", {{"warm.bias", entry}}}}.dump();
    return written(records);
  };
  refused(with_weight("", {}), "the file lacks the tensor warm.weight");
  refused(with_weight("/tensor_meta/storage_offset/as_int", int64_t{1} << 40), "reaches beyond its 8 bytes");
  refused(with_weight("/tensor_meta/storage_offset/as_int", -4), "reaches beyond its 8 bytes");
  refused(with_weight("/tensor_meta/sizes/0/as_int", (int64_t{1} << 62) + 3), "reaches beyond its 8 bytes");
  refused(with_weight("/tensor_meta/strides/0/as_int", int64_t{1} << 50), "reaches beyond its 8 bytes");
  refused(with_weight("/tensor_meta/dtype", 11), "reaches beyond its 8 bytes");
  refused(with_weight("/tensor_meta/dtype", 99), "dtype 99 is not supported");
  refused(with_weight("/tensor_meta/layout", 1), "is sparse");
  refused(with_weight("/use_pickle", true), "is pickled");
  refused(with_weight("/path_name", "../../etc/passwd"), "a record's name is a path");
  refused(with_weight("/path_name", "weight_1"), "the archive holds no data/weights/weight_1");
}

}  // namespace
}  // namespace lockstep::exported
