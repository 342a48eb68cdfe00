#include "lockstep/checkpoint/archive_writer.h"

#include <exception>

namespace lockstep::checkpoint {

void write_archive(const base::ByteSink& sink,
                   const std::function<void(caffe2::serialize::PyTorchStreamWriter&)>& records) {
  std::exception_ptr failure;
  // The writer must never see a failure: its destructor would write on, fail again and end the program.
  const auto guarded = [&](const void* data, size_t size) {
    try {
      if (!failure) sink(data, size);
    } catch (...) {
      failure = std::current_exception();
    }
    return size;
  };
  {
    caffe2::serialize::PyTorchStreamWriter writer(guarded);
    records(writer);
    writer.writeEndOfFile();
  }
  if (failure) std::rethrow_exception(failure);
}

}  // namespace lockstep::checkpoint
