#pragma once
// A piece of a file in memory, and tensors that look into it.

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <memory>

namespace lockstep::data {

/// Mapped while this object lives, shared with every process that maps the same.
class Mapping {
 public:
  Mapping(int fd, int64_t offset, size_t bytes, int protection);
  ~Mapping();
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  char* data() const { return static_cast<char*>(data_); }
  bool holds(const void* place) const { return place >= data_ && place < static_cast<char*>(data_) + bytes_; }
  void make_read_only() const;

 private:
  void* data_;
  size_t bytes_;
};

/// A tensor at `place`, which keeps the mapping alive.
at::Tensor view_of(std::shared_ptr<Mapping> mapping, char* place, at::IntArrayRef shape, at::ScalarType type);

}  // namespace lockstep::data
