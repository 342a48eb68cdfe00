// Writing .pt: plain dictionaries and lists, dense tensors, and a seal over the whole file at its end.
#include <ATen/core/jit_type.h>
#include <torch/csrc/jit/serialization/export.h>
#include <torch/csrc/jit/serialization/pickler.h>
#include <torch/types.h>

#include <bit>

#include "lockstep/base/error.h"
#include "lockstep/checkpoint/archive_writer.h"
#include "lockstep/checkpoint/map_tensors.h"
#include "lockstep/checkpoint/pt.h"
#include "lockstep/checkpoint/seal.h"

namespace lockstep {

namespace {

static_assert(std::endian::native == std::endian::little, "the byteorder record says little");

/// Plain dictionaries and lists throughout (typed ones are pickled with TorchScript's tags), tensors
/// detached.
Tree plain(const Tree& tree) {
  if (tree.isTensor()) {
    const auto& tensor = tree.toTensor();
    checkpoint::require_dense(tensor);
    return tensor.detach();
  }
  if (tree.isGenericDict()) {
    auto copy = make_dict();
    for (const auto& [key, value] : items(tree)) put(copy, key, plain(value));
    return copy;
  }
  if (tree.isList() || tree.isTuple()) {
    std::vector<Tree> values;
    for (const auto& value : elements(tree)) values.push_back(plain(value));
    if (tree.isTuple()) return c10::ivalue::Tuple::create(std::move(values));
    return make_list(values);
  }
  if (tree.isNone() || tree.isBool() || tree.isInt() || tree.isDouble() || tree.isString()) return tree;
  throw Error("a checkpoint holds no values of the kind " + tree.tagKind(), "write_pt",
              "give tensors, numbers, text, None, and dictionaries, lists or tuples of them");
}

}  // namespace

void write_pt(const base::ByteSink& sink, const Tree& tree) {
  checkpoint::SealingSink sealed(sink);
  const auto copy = plain(tree);
  std::string pickle;
  torch::jit::Pickler pickler([&](const char* data, size_t size) { pickle.append(data, size); }, nullptr,
                              nullptr, nullptr, nullptr, /*tag_aggregates=*/false);
  pickler.protocol();
  pickler.pushIValue(copy);
  pickler.stop();
  const auto into_seal = [&](const void* data, size_t size) { sealed.write(data, size); };
  checkpoint::write_archive(into_seal, [&](caffe2::serialize::PyTorchStreamWriter& archive) {
    archive.writeRecord("byteorder", "little", 6);
    torch::jit::writeArchiveAndTensors("data", pickle.data(), pickle.size(), pickler.tensorData(), archive);
  });
  sealed.finish();
}

void write_pt(const std::string& path, const Tree& tree) {
  base::write_whole(path, [&](const base::ByteSink& sink) { write_pt(sink, tree); });
}

}  // namespace lockstep
