#include "lockstep/parallel/mesh.h"

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"
#include "lockstep/base/text.h"

namespace lockstep {
namespace {

MeshShape fitted(MeshShape shape, int world) {
  const int64_t model = int64_t{shape.tensor} * shape.pipeline;
  if (model > 0 && shape.data == 0 && world % model == 0) shape.data = static_cast<int>(world / model);
  if (shape.data > 0 && shape.data * model == world) return shape;
  const auto given = shape.data == 0 ? "" : format("parallel.data {} x ", shape.data);
  throw InputError(format("{} cannot be divided into {}parallel.tensor {} x parallel.pipeline {}",
                          base::counted(world, "rank"), given, shape.tensor, shape.pipeline),
                   "parallel",
                   shape.data == 0 ? format("start a multiple of {}", base::counted(model, "rank"))
                                   : format("start {}, or set parallel.data to 0 (computed from the others)",
                                            base::counted(shape.data * model, "rank")));
}

}  // namespace

Mesh::Mesh(const Team& all)
    : shape_{.data = all.world()},
      all_(all),
      data_(all),
      tensor_(all.job(), {}, all.device()),
      pipeline_(tensor_) {}

Mesh::Mesh(const Team& all, MeshShape shape,
           const std::function<Team(int part, const std::string& name)>& split)
    : Mesh(all) {
  shape_ = fitted(shape, all.world());
  const int column = all.rank() % shape_.tensor;
  const int row = all.rank() / shape_.tensor % shape_.data;
  const int stage = all.rank() / (shape_.tensor * shape_.data);
  const auto line = [&](int size, int which, const char* name) {
    if (size == all.world()) return all;
    return size == 1 ? Team(all.job(), {}, all.device()) : split(which, name);
  };
  data_ = line(shape_.data, stage * shape_.tensor + column, "data");
  tensor_ = line(shape_.tensor, stage * shape_.data + row, "tensor");
  pipeline_ = line(shape_.pipeline, row * shape_.tensor + column, "pipeline");
}

Mesh::Mesh(const Session& session, MeshShape shape)
    : Mesh(session.team(), shape,
           [&session](int part, const std::string& name) { return session.split(part, name); }) {}

}  // namespace lockstep
