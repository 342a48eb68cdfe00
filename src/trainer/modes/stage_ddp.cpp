#include "trainer/modes/stage_ddp.h"

#include <algorithm>
#include <iterator>
#include <sstream>

#include "lockstep/base/text.h"
#include "lockstep/parallel/ddp.h"
#include "lockstep/parallel/module_tensors.h"
#include "trainer/observe/traced_hook.h"

namespace lockstep::train {
namespace {

std::unique_ptr<DdpCore> make_core(const std::shared_ptr<StageNet>& net, const Team& copies,
                                   const DdpSettings& settings, const std::shared_ptr<Tracer>& tracer) {
  if (copies.world() == 1 || parallel::reduced_parameters(*net).empty()) return nullptr;
  auto core =
      std::make_unique<DdpCore>(net, copies.group(),
                                DdpOptions{.find_unused_parameters = settings.find_unused_parameters,
                                           .gradient_as_bucket_view = settings.gradient_as_bucket_view,
                                           .broadcast_buffers = settings.broadcast_buffers,
                                           .bucket_cap_mb = settings.bucket_cap_mb});
  auto hook = hooks::by_name(settings.comm_hook, copies.group(), settings.options);
  if (tracer) hook = traced(std::move(hook), copies.group(), tracer);
  if (hook) core->register_comm_hook(std::move(hook), settings.comm_hook);
  return core;
}

}  // namespace

StageDdp::StageDdp(std::shared_ptr<StageNet> net, const Team& copies, const DdpSettings& settings,
                   const std::shared_ptr<Tracer>& tracer)
    : net_(std::move(net)), core_(make_core(net_, copies, settings, tracer)) {}

std::shared_ptr<void> StageDdp::no_sync() const {
  return core_ ? std::make_shared<NoSync>(*core_) : nullptr;
}

void StageDdp::begin_batch() {
  if (!core_) return;
  core_->before_forward();
  local_ = no_sync();
}

void StageDdp::begin_last_backward(at::Tensor& root) {
  if (!core_) return;
  local_.reset();
  core_->after_forward({&root});
}

StageDdp::Buckets StageDdp::all_buckets(const Team& line) const {
  std::string mine;
  if (core_) {
    for (const auto& bucket : core_->settle_buckets()) mine += base::join(bucket, " ") + "\n";
  }
  Buckets all;
  for (const auto& text : line.all_gather(mine)) {
    std::istringstream lines(text);
    for (std::string one; std::getline(lines, one);) {
      std::istringstream words(one);
      all.emplace_back(std::istream_iterator<std::string>(words), std::istream_iterator<std::string>());
    }
  }
  return all;
}

void StageDdp::restore_buckets(const Buckets& names) const {
  if (!core_) return;
  const auto own = net_->named_parameters();
  Buckets buckets;
  for (const auto& bucket : names) {
    std::vector<std::string> here;
    std::copy_if(bucket.begin(), bucket.end(), std::back_inserter(here),
                 [&](const auto& name) { return own.contains(name); });
    if (!here.empty()) buckets.push_back(here);
  }
  core_->restore_buckets(buckets);
}

}  // namespace lockstep::train
