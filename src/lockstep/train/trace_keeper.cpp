#include "lockstep/train/trace_keeper.h"

#include <algorithm>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"
#include "lockstep/base/log.h"

namespace lockstep::train {
namespace {

// What rank 0 takes from all ranks together: beyond some hundred of them each sends fewer steps.
constexpr size_t kMostBytes = 64 << 20;

// A step has five phases and what stands between them; an accumulated batch three; a bucket one.
constexpr int64_t kSpansAStep = 40, kSpansABatch = 3;
constexpr int64_t kMostSpans = 4 << 20;

}  // namespace

std::shared_ptr<Tracer> make_tracer(const Settings& settings) {
  const int64_t steps = settings.train.trace;
  if (steps <= 0) return nullptr;
  const int64_t a_step =
      kSpansAStep + kSpansABatch * std::min<int64_t>(settings.train.accumulate, kMostSpans);
  const int64_t room = steps > kMostSpans / a_step ? kMostSpans : steps * a_step;
  return std::make_shared<Tracer>(steps, static_cast<size_t>(room));
}

TraceKeeper::TraceKeeper(const Team& team, std::shared_ptr<Tracer> tracer,
                         std::shared_ptr<run_folder::HeldFolder> folder)
    : team_(team), tracer_(std::move(tracer)), folder_(std::move(folder)) {}

void TraceKeeper::begin() {
  if (tracer_) first_ = compare_clocks(team_, *tracer_);
}

void TraceKeeper::finish() {
  if (!tracer_) return;
  const auto last = compare_clocks(team_, *tracer_);
  const auto most = kMostBytes / static_cast<size_t>(team_.world());
  const auto spans = team_.all_gather(packed(tracer_->spans(), most));
  const auto hosts = team_.all_gather(team_.job().host);
  if (!team_.first()) return;
  std::vector<RankTrace> ranks;
  for (size_t i = 0; i < spans.size(); ++i)
    ranks.push_back({static_cast<int>(i), hosts[i], unpacked(spans[i]), first_[i], last[i]});
  write(ranks, format("the last {} steps of all ranks", tracer_->steps()));
}

RankTrace TraceKeeper::own() const {
  RankTrace rank = {team_.rank(), team_.job().host, tracer_->spans(), {}, {}};
  if (!first_.empty()) rank.first = rank.last = first_[static_cast<size_t>(team_.rank())];
  return rank;
}

void TraceKeeper::save_own(const std::string& why) noexcept {
  if (!tracer_ || written_) return;
  try {
    write({own()}, "this rank alone: " + why);
  } catch (const std::exception& error) {
    log::warning(describe(error));
  }
}

void TraceKeeper::write(const std::vector<RankTrace>& ranks, const std::string& note) noexcept {
  if (!folder_) return;
  try {
    const auto path = folder_->path();
    base::write_whole((path / "trace.json").string(),
                      [&](const base::ByteSink& sink) { write_trace(ranks, note, sink); },
                      [&] { folder_->check(path); });
    written_ = true;
  } catch (const std::exception& error) {
    log::warning("the trace could not be written\n" + describe(error));
  }
}

}  // namespace lockstep::train
