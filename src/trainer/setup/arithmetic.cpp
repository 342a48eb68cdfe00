#include "trainer/setup/arithmetic.h"

#include <ATen/Context.h>
#include <c10/util/Exception.h>

#include <cstdlib>

namespace lockstep::train {
namespace {

class Silence : public c10::WarningHandler {
 public:
  void process(const c10::Warning&) override {}
};

}  // namespace

// What is libtorch's default is left alone: its own variables, or the program, may have said otherwise.
void choose_arithmetic(const TrainSettings& train) {
  Silence silence;  // libtorch 2.9 and later have another name for these, and still obey them
  const c10::WarningUtils::WarningHandlerGuard guard(&silence);
  auto& context = at::globalContext();
  if (train.tf32 != Tf32::convolutions) {
    context.setAllowTF32CuDNN(train.tf32 == Tf32::all);
    context.setAllowTF32CuBLAS(train.tf32 == Tf32::all);
  }
  if (train.cudnn_benchmark) context.setBenchmarkCuDNN(true);
  if (!train.deterministic) return;
  context.setDeterministicAlgorithms(true, /*warn_only=*/false);
  ::setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8", 0);  // cuBLAS has its own condition
}

}  // namespace lockstep::train
