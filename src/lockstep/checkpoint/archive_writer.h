#pragma once
// libtorch's writer of zip archives, over a sink that may fail.

#include <caffe2/serialize/inline_container.h>

#include <functional>

#include "lockstep/base/files/whole_file.h"

namespace lockstep::checkpoint {

/// Writes an archive whose records are what `records` writes. What the sink throws is thrown again at the
/// end.
void write_archive(const base::ByteSink& sink,
                   const std::function<void(caffe2::serialize::PyTorchStreamWriter&)>& records);

}  // namespace lockstep::checkpoint
