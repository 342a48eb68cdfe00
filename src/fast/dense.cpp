#include <algorithm>
#include <utility>

#include "fast/table.h"
#include "lockstep/kernels/vector.h"

namespace lockstep::kernels {
namespace {

// c[m][n] = start(n) + the sum over k of a[m][k] * b[k][n], as finish() leaves it.
struct Product {
  const float* a;
  int64_t a_row, a_step;  // from a row to the next, and along it
  const float* b;
  float* c;
  int64_t rows, columns, depth;  // b and c have rows of `columns` numbers
};

// A few rows and registers' widths of c at once: each number read is used several times.
template <int lanes, int high, int wide, class Start, class Finish>
LOCKSTEP_INLINE inline void tile(const Product& p, int64_t row, int64_t column, const Start& start,
                                 const Finish& finish) {
  Floats<lanes> sums[high][wide];
  for (int j = 0; j < wide; ++j) {
    const auto first = start(Lanes<lanes>(), column + j * lanes);
    for (int i = 0; i < high; ++i) sums[i][j] = first;
  }
  const float* a = p.a + row * p.a_row;
  const float* b = p.b + column;
  for (int64_t k = 0; k < p.depth; ++k, a += p.a_step, b += p.columns) {
    for (int j = 0; j < wide; ++j) {
      const auto across = load_floats<lanes>(b + j * lanes);
      for (int i = 0; i < high; ++i) sums[i][j] += a[i * p.a_row] * across;
    }
  }
  for (int i = 0; i < high; ++i)
    for (int j = 0; j < wide; ++j) {
      const int64_t at = (row + i) * p.columns + column + j * lanes;
      store_floats<lanes>(p.c + at, finish(Lanes<lanes>(), at, sums[i][j]));
    }
}

template <int lanes, int wide, class Start, class Finish>
LOCKSTEP_INLINE inline void strip(const Product& p, int64_t column, const Start& start,
                                  const Finish& finish) {
  constexpr int kHigh = 4;
  int64_t row = 0;
  for (; row + kHigh <= p.rows; row += kHigh) tile<lanes, kHigh, wide>(p, row, column, start, finish);
  for (; row < p.rows; ++row) tile<lanes, 1, wide>(p, row, column, start, finish);
}

template <int lanes, class Start, class Finish>
LOCKSTEP_INLINE inline void multiply(Lanes<lanes> registers, const Product& p, const Start& start,
                                     const Finish& finish) {
  const int64_t pairs = p.columns / (2 * lanes) * (2 * lanes);
  for (int64_t column = 0; column < pairs; column += 2 * lanes) strip<lanes, 2>(p, column, start, finish);
  if (pairs == p.columns) return;
  for_chunks(registers, p.columns - pairs, [&](auto chunk, int64_t i) LOCKSTEP_INLINE {
    constexpr int some = chunk;
    strip<some, 1>(p, pairs + i, start, finish);
  });
}

struct StartZero {
  template <int lanes>
  LOCKSTEP_INLINE Floats<lanes> operator()(Lanes<lanes>, int64_t) const {
    return Floats<lanes>{};
  }
};

struct StartBias {
  const float* bias;
  template <int lanes>
  LOCKSTEP_INLINE Floats<lanes> operator()(Lanes<lanes>, int64_t column) const {
    return bias ? load_floats<lanes>(bias + column) : Floats<lanes>{};
  }
};

struct Identity {
  template <int lanes>
  LOCKSTEP_INLINE Floats<lanes> operator()(Lanes<lanes>, int64_t, Floats<lanes> sum) const {
    return sum;
  }
};

struct Relu {
  template <int lanes>
  LOCKSTEP_INLINE Floats<lanes> operator()(Lanes<lanes>, int64_t, Floats<lanes> sum) const {
    const Floats<lanes> zero = {};
    return sum < zero ? zero : sum;
  }
};

// Nothing goes back through a ReLU that has let nothing through.
struct ReluGradient {
  const float* output;
  template <int lanes>
  LOCKSTEP_INLINE Floats<lanes> operator()(Lanes<lanes>, int64_t at, Floats<lanes> sum) const {
    const Floats<lanes> zero = {};
    return load_floats<lanes>(output + at) <= zero ? zero : sum;
  }
};

void turn(const DenseLayer& layer, float* turned) {
  for (int64_t i = 0; i < layer.inputs; ++i)
    for (int64_t o = 0; o < layer.outputs; ++o)
      turned[i * layer.outputs + o] = layer.weight[o * layer.inputs + i];
}

template <int lanes>
LOCKSTEP_INLINE inline void sum_rows(Lanes<lanes> registers, const float* from, int64_t rows, int64_t columns,
                                     float* sums) {
  for_chunks(registers, columns, [&](auto chunk, int64_t i) LOCKSTEP_INLINE {
    constexpr int some = chunk;
    Floats<some> sum = {};
    for (int64_t row = 0; row < rows; ++row) sum += load_floats<some>(from + row * columns + i);
    store_floats<some>(sums + i, sum);
  });
}

class Chain : public DenseChain {
 public:
  Chain(std::vector<DenseLayer> layers, SimdLevel level)
      : layers_(std::move(layers)), level_(level), outputs_(layers_.size()) {
    for (const auto& layer : layers_) turned_.emplace_back(layer.inputs * layer.outputs);
  }

  DenseLayer& layer(size_t i) override { return layers_[i]; }
  const float* forward(const float* x, int64_t rows) override;
  float* output_gradient() override { return gradient_.data(); }
  void backward(const float* x) override;

 private:
  std::vector<DenseLayer> layers_;
  SimdLevel level_;
  int64_t rows_ = 0;
  std::vector<std::vector<float>> turned_;   // weights transposed: [inputs, outputs]
  std::vector<std::vector<float>> outputs_;  // of each layer, behind its ReLU
  std::vector<float> gradient_, next_gradient_;
};

const float* Chain::forward(const float* x, int64_t rows) {
  if (rows != rows_) {
    rows_ = rows;
    int64_t widest = 0;
    for (size_t i = 0; i < layers_.size(); ++i) {
      outputs_[i].resize(rows * layers_[i].outputs);
      widest = std::max(widest, layers_[i].outputs);
    }
    gradient_.resize(rows * widest);
    next_gradient_.resize(rows * widest);
  }
  for (size_t i = 0; i < layers_.size(); ++i) {
    const auto& layer = layers_[i];
    turn(layer, turned_[i].data());
    const Product product = {.a = i == 0 ? x : outputs_[i - 1].data(),
                             .a_row = layer.inputs,
                             .a_step = 1,
                             .b = turned_[i].data(),
                             .c = outputs_[i].data(),
                             .rows = rows,
                             .columns = layer.outputs,
                             .depth = layer.inputs};
    const StartBias start = {layer.bias};
    const bool last = i + 1 == layers_.size();
    run_at(level_, [&](auto lanes) LOCKSTEP_INLINE {
      last ? multiply(lanes, product, start, Identity()) : multiply(lanes, product, start, Relu());
    });
  }
  return outputs_.back().data();
}

void Chain::backward(const float* x) {
  for (size_t i = layers_.size(); i-- > 0;) {
    const auto& layer = layers_[i];
    const float* input = i == 0 ? x : outputs_[i - 1].data();
    const Product to_weight = {.a = gradient_.data(),
                               .a_row = 1,
                               .a_step = layer.outputs,
                               .b = input,
                               .c = layer.weight_gradient,
                               .rows = layer.outputs,
                               .columns = layer.inputs,
                               .depth = rows_};
    const Product to_input = {.a = gradient_.data(),
                              .a_row = layer.outputs,
                              .a_step = 1,
                              .b = layer.weight,
                              .c = next_gradient_.data(),
                              .rows = rows_,
                              .columns = layer.inputs,
                              .depth = layer.outputs};
    run_at(level_, [&](auto lanes) LOCKSTEP_INLINE {
      multiply(lanes, to_weight, StartZero(), Identity());
      if (layer.bias) sum_rows(lanes, gradient_.data(), rows_, layer.outputs, layer.bias_gradient);
      if (i > 0) multiply(lanes, to_input, StartZero(), ReluGradient{input});
    });
    gradient_.swap(next_gradient_);
  }
}

}  // namespace

std::unique_ptr<DenseChain> make_dense_chain(std::vector<DenseLayer> layers, SimdLevel level) {
  return std::make_unique<Chain>(std::move(layers), level);
}

}  // namespace lockstep::kernels
