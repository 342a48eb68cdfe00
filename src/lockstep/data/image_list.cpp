#include "lockstep/data/image_list.h"

#include <ATen/ATen.h>

#include <cstring>

namespace lockstep::data {

std::string ImageList::file(int64_t index) const {
  const auto* end = ends.const_data_ptr<int64_t>() + index;
  const int64_t begin = index == 0 ? 0 : end[-1];
  return {reinterpret_cast<const char*>(names.const_data_ptr<uint8_t>()) + begin,
          static_cast<size_t>(*end - begin)};
}

ImageList image_list(const std::string& root, const std::vector<std::string>& files,
                     const std::vector<int64_t>& labels) {
  std::string names;
  std::vector<int64_t> ends;
  for (const auto& file : files) {
    names += file;
    ends.push_back(static_cast<int64_t>(names.size()));
  }
  ImageList list{.root = root,
                 .names = at::empty({static_cast<int64_t>(names.size())}, at::kByte),
                 .ends = at::tensor(ends, at::kLong),
                 .labels = labels.empty() && !files.empty() ? at::Tensor() : at::tensor(labels, at::kLong)};
  if (!names.empty()) std::memcpy(list.names.mutable_data_ptr<uint8_t>(), names.data(), names.size());
  return list;
}

}  // namespace lockstep::data
