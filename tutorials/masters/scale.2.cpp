//@ title      A linear layer that the ranks share
//@ hint       Each rank has some of the outputs of the column-parallel layer. Which member of Team gives all ranks every rank's part?
//@ hint       Join the parts of a row with torch::cat along dimension 1.
//@ hint       Every input affects every output. Which ranks have a part of the gradient of an input?
//@ hint       In the row-parallel layer each rank has a part of a sum. Add the bias to the sum, not to each part.
#include <lockstep/workshop.h>

// outputs = inputs * weight^T + bias, with a weight of [outputs, inputs] that is too large for one rank. The ranks
// exchange outputs and gradients, not weights.

using torch::Tensor;

// The session's team, which counts the numbers that this rank sends.
class Team {
 public:
  explicit Team(const lockstep::Team& team) : team_(team) {}
  int rank() const { return team_.rank(); }
  int world() const { return team_.world(); }
  std::vector<Tensor> all_gather(const Tensor& part) {
    given_ += part.numel();
    return team_.all_gather(part);
  }
  void sum(std::vector<Tensor>& tensors) {
    for (const auto& tensor : tensors) given_ += tensor.numel();
    team_.sum(tensors);
  }
  int64_t take_given() { return std::exchange(given_, 0); }

 private:
  const lockstep::Team& team_;
  int64_t given_ = 0;
};

// Column-parallel: each rank has some of the outputs, that is some rows of the weight and their biases. Every rank has
// all inputs. Return all outputs, on every rank.
Tensor column_forward(Team& team, const Tensor& weight_part, const Tensor& bias_part, const Tensor& inputs) {
  const Tensor part = torch::matmul(inputs, weight_part.t()) + bias_part;
  //@ todo
  // TODO: return all outputs, in the order of the ranks
  (void)team;
  return part;
  //@ solution
  return torch::cat(team.all_gather(part), 1);
  //@ wrong added
  std::vector<Tensor> parts = {part};
  team.sum(parts);
  return parts[0];
  //@ wrong weight: it sent weights
  (void)part;
  return torch::matmul(inputs, torch::cat(team.all_gather(weight_part), 0).t()) +
         torch::cat(team.all_gather(bias_part), 0);
  //@ wrong stacked
  return torch::cat(team.all_gather(part), 0);
  //@ end
}

// Its backward: takes the loss's gradient for all outputs and returns that for the inputs.
Tensor column_backward(Team& team, const Tensor& weight_part, const Tensor& output_gradient) {
  const Tensor own = output_gradient.chunk(team.world(), 1)[static_cast<size_t>(team.rank())];
  const Tensor part = torch::matmul(own, weight_part);
  //@ todo
  // TODO: the gradient for the inputs depends on all outputs
  return part;
  //@ solution
  std::vector<Tensor> gradients = {part};
  team.sum(gradients);
  return gradients[0];
  //@ wrong back_weight: it sent weights
  (void)part;
  return torch::matmul(output_gradient, torch::cat(team.all_gather(weight_part), 0));
  //@ wrong alone
  return part;
  //@ wrong mean: a mean
  std::vector<Tensor> gradients = {part};
  team.sum(gradients);
  return gradients[0] / team.world();
  //@ end
}

// Row-parallel: each rank has some of the inputs, that is some columns of the weight, and the whole bias. Return all
// outputs, on every rank.
Tensor row_forward(Team& team, const Tensor& weight_part, const Tensor& bias, const Tensor& inputs_part) {
  //@ todo
  // TODO: outputs depend on the inputs of all ranks
  (void)team;
  return torch::matmul(inputs_part, weight_part.t()) + bias;
  //@ solution
  std::vector<Tensor> sums = {torch::matmul(inputs_part, weight_part.t())};
  team.sum(sums);
  return sums[0] + bias;
  //@ wrong bias
  std::vector<Tensor> sums = {torch::matmul(inputs_part, weight_part.t()) + bias};
  team.sum(sums);
  return sums[0];
  //@ wrong row_weight: it sent weights
  return torch::matmul(torch::cat(team.all_gather(inputs_part), 1),
                       torch::cat(team.all_gather(weight_part), 1).t()) + bias;
  //@ wrong own
  (void)team;
  return torch::matmul(inputs_part, weight_part.t()) + bias;
  //@ end
}

// Small integers, so that sums are exact in any order.
Tensor numbers(int64_t rows, int64_t columns, int64_t step) {
  return torch::remainder(torch::arange(rows * columns) * step, 7).sub(3).to(torch::kFloat).reshape({rows, columns});
}

int main() {
  return lockstep::run([] {
    lockstep::Session session;
    Team team(session.team());
    std::vector<int64_t> given;
    const auto own = [&](const Tensor& whole, int64_t dimension) {
      return whole.chunk(team.world(), dimension)[static_cast<size_t>(team.rank())];
    };
    const auto inputs = numbers(2, 6, 3), weight = numbers(6, 6, 5), bias = numbers(1, 6, 4).flatten();
    const auto show = [&](const char* name, const Tensor& made) {
      lockstep::show(name, made);
      given.push_back(team.take_given());
    };
    show("column", column_forward(team, own(weight, 0), own(bias, 0), inputs));
    show("gradient", column_backward(team, own(weight, 0), numbers(2, 6, 2)));
    show("row", row_forward(team, own(weight, 1), bias, own(inputs, 1)));
    lockstep::show("given", given);
  });
}
