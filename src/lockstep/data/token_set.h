#pragma once
// Texts as tokens, padded to the longest of a batch: what a model of language reads.

#include <ATen/core/Tensor.h>

#include <vector>

#include "lockstep/data/dataset.h"

namespace lockstep {

/// Encoded texts laid end to end.
struct Tokens {
  at::Tensor ids;      ///< int32 [tokens of all samples]
  at::Tensor starts;   ///< int64 [samples + 1]: where each begins, and the end
  at::Tensor seconds;  ///< int32 [samples]: how many tokens come before those of the second text
  at::Tensor targets;  ///< int64 [samples], float [samples, 1], or undefined

  /// How many samples there are.
  int64_t size() const { return seconds.size(0); }
};

/// Batches of int64 [samples, 3, tokens]: input_ids, token_type_ids, attention_mask.
class TokenSet : public Dataset {
 public:
  /// `parts` follow one another; `pad` is the number of [PAD].
  TokenSet(std::vector<Tokens> parts, int64_t pad);
  /// Some rows of one part, in that order.
  TokenSet(Tokens part, std::vector<int64_t> rows, int64_t pad);
  int64_t size() const override { return size_; }
  Batch get(at::ArrayRef<int64_t> indices, bool pinned = false) const override;
  std::vector<int64_t> lengths() const override;

 private:
  struct Place {
    const Tokens* part;
    int64_t row;
  };
  Place place(int64_t index) const;

  std::vector<Tokens> parts_;
  std::vector<int64_t> ends_;  // of the parts, in samples
  std::vector<int64_t> rows_;  // of the one part, where not all are taken
  int64_t pad_, size_;
  bool picked_ = false;
};

}  // namespace lockstep
