#include "lockstep/parallel/mesh.h"

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"

namespace lockstep {
namespace {

std::string ranks(int64_t count) {
  return format("{} rank{}", count, count == 1 ? "" : "s");
}

MeshShape fitted(MeshShape shape, int world) {
  const int64_t model = int64_t{shape.tensor} * shape.pipeline;
  if (model > 0 && shape.data == 0 && world % model == 0) shape.data = static_cast<int>(world / model);
  if (shape.data > 0 && shape.data * model == world) return shape;
  const auto given = shape.data == 0 ? "" : format("parallel.data {} x ", shape.data);
  throw InputError(format("{} cannot be divided into {}parallel.tensor {} x parallel.pipeline {}",
                          ranks(world), given, shape.tensor, shape.pipeline),
                   "parallel",
                   shape.data == 0 ? format("start {} or a multiple of it", ranks(model))
                                   : format("start {}, or set parallel.data to 0 (computed from the others)",
                                            ranks(shape.data * model)));
}

// Which line of the grid a rank is in, along each dimension.
struct Lines {
  int data, tensor, pipeline;
};

Lines lines_of(int rank, const MeshShape& shape) {
  const int column = rank % shape.tensor;
  const int row = rank / shape.tensor % shape.data;
  const int stage = rank / (shape.tensor * shape.data);
  return {stage * shape.tensor + column, stage * shape.data + row, row * shape.tensor + column};
}

using Split = std::function<Team(int part, const std::string& name)>;

Team line(const Team& all, const Split& split, int size, int which, const char* name) {
  if (size == all.world()) return all;
  return size == 1 ? Team(all.job(), {}, all.device()) : split(which, name);
}

}  // namespace

Mesh::Mesh(const Team& all)
    : shape_{.data = all.world()},
      all_(all),
      data_(all),
      tensor_(all.job(), {}, all.device()),
      pipeline_(tensor_) {}

Mesh::Mesh(const Team& all, MeshShape shape, const Split& split)
    : shape_(fitted(shape, all.world())),
      all_(all),
      data_(line(all, split, shape_.data, lines_of(all.rank(), shape_).data, "data")),
      tensor_(line(all, split, shape_.tensor, lines_of(all.rank(), shape_).tensor, "tensor")),
      pipeline_(line(all, split, shape_.pipeline, lines_of(all.rank(), shape_).pipeline, "pipeline")) {}

Mesh::Mesh(const Session& session, MeshShape shape)
    : Mesh(session.team(), shape,
           [&session](int part, const std::string& name) { return session.split(part, name); }) {}

}  // namespace lockstep
