#pragma once
// The samples of an evaluation that the model is most wrong about.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/data/dataset.h"
#include "lockstep/parallel/team.h"

namespace lockstep::train {

struct WorstSample {
  double loss = 0;  ///< the cross-entropy of this sample alone; infinite where it is no number
  int64_t number = 0, actual = 0, predicted = 0;
  double probability = 0;            ///< of `predicted`, as the model has it
  std::vector<int64_t> shape = {};   ///< of an image, channels first; empty where it is none
  std::vector<uint8_t> pixels = {};  ///< stretched from the image's darkest to its brightest
};

class WorstSamples {
 public:
  static constexpr size_t kMost = 12;

  /// A batch's output with a row of class scores for each sample; other outputs are skipped. CPU tensors.
  void add(const at::Tensor& output, const at::Tensor& target, at::ArrayRef<int64_t> indices);
  /// This rank's, the worst first.
  const std::vector<WorstSample>& kept() const { return kept_; }
  /// The worst of all ranks with their pixels, on every rank. Collective.
  std::vector<WorstSample> gather(const Team& team, const Dataset& set) const;

 private:
  void offer(const WorstSample& sample);
  std::vector<WorstSample> kept_;
};

}  // namespace lockstep::train
