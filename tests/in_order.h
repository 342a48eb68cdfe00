#pragma once
// NCCL's rules for messages, on CPUs: tensors travel in groups alone, a rank's group has ended on both sides
// before anything else of it begins, and two ranks that are alone connect the same ways in the same group.
// The path that a GPU takes is tested over it.

#include <gtest/gtest.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include <array>
#include <functional>
#include <stdexcept>
#include <utility>
#include <vector>

namespace lockstep::test {

class InOrder : public c10d::Backend {
 public:
  using WorkPtr = c10::intrusive_ptr<c10d::Work>;
  using Tensors = std::vector<at::Tensor>;
  using TensorLists = std::vector<Tensors>;

  explicit InOrder(c10::intrusive_ptr<c10d::Backend> carrier)
      : Backend(carrier->getRank(), carrier->getSize()), carrier_(std::move(carrier)) {}

  const std::string getBackendName() const override { return "in_order"; }
  bool supportsCoalescing() const override { return true; }

  void startCoalescing() override {
    EXPECT_FALSE(is_open_) << "a group within a group";
    is_open_ = true;
  }
  WorkPtr endCoalescing() override {
    std::vector<WorkPtr> under_way;
    connect();
    for (const auto& message : std::exchange(messages_, {})) under_way.push_back(message.start());
    for (const auto& work : under_way) work->wait();
    is_open_ = false;
    ++groups_;
    return c10::make_intrusive<Ended>();
  }
  int64_t groups() const { return groups_; }

  WorkPtr send(Tensors& tensors, int to, int tag) override {
    return message(tensors, true,
                   [this, tensors, to, tag]() mutable { return carrier_->send(tensors, to, tag); });
  }
  WorkPtr recv(Tensors& tensors, int from, int tag) override {
    return message(tensors, false,
                   [this, tensors, from, tag]() mutable { return carrier_->recv(tensors, from, tag); });
  }
  WorkPtr broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) override {
    return carrier_->broadcast(tensors, options);
  }
  WorkPtr allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) override {
    return carrier_->allreduce(tensors, options);
  }
  WorkPtr allgather(TensorLists& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) override {
    return carrier_->allgather(outputs, inputs, options);
  }
  WorkPtr barrier(const c10d::BarrierOptions& options) override { return carrier_->barrier(options); }

 private:
  struct Ended : c10d::Work {
    bool wait(std::chrono::milliseconds) override { return true; }
  };

  // Whole numbers go from CPU to CPU beside NCCL: what says a tensor's form, and a checkpoint's bytes.
  WorkPtr message(const Tensors& tensors, bool sends, std::function<WorkPtr()> start) {
    if (!is_open_) {
      EXPECT_TRUE(c10::isIntegralType(tensors.at(0).scalar_type(), false)) << "a tensor outside of a group";
      return start();
    }
    messages_.push_back({sends, std::move(start)});
    return {};
  }

  // As ncclTransportP2pSetup does, which tells the peer of all new ways in one message.
  void connect() {
    int64_t ways = 0;
    for (const auto& message : messages_) ways += !std::exchange(connected_[message.sends ? 1 : 0], true);
    if (getSize() != 2 || ways == 0) return;
    Tensors mine{at::full({1}, static_cast<double>(ways), at::kFloat)}, others{at::zeros({1}, at::kFloat)};
    const auto sent = carrier_->send(mine, 1 - getRank(), kConnects);
    carrier_->recv(others, 1 - getRank(), kConnects)->wait();
    sent->wait();
    if (const auto theirs = others[0].item<double>(); theirs != static_cast<double>(ways))
      throw std::runtime_error("Message truncated: the two ranks' first groups go other ways");
  }

  struct Message {
    bool sends;
    std::function<WorkPtr()> start;
  };
  static constexpr int kConnects = 4711;  // a tag

  c10::intrusive_ptr<c10d::Backend> carrier_;
  std::vector<Message> messages_;
  std::array<bool, 2> connected_{};
  bool is_open_ = false;
  int64_t groups_ = 0;
};

/// The same ranks, over such a backend.
inline c10::intrusive_ptr<c10d::ProcessGroup> in_order(const c10::intrusive_ptr<c10d::ProcessGroup>& group) {
  auto same = c10::make_intrusive<c10d::ProcessGroup>(group->getRank(), group->getSize());
  same->setBackend(c10::kCPU, c10d::ProcessGroup::BackendType::CUSTOM,
                   c10::make_intrusive<InOrder>(group->getBackend(c10::kCPU)));
  same->setDefaultBackend(c10d::ProcessGroup::BackendType::CUSTOM);
  return same;
}

}  // namespace lockstep::test
