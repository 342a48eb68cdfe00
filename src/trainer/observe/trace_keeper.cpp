#include "trainer/observe/trace_keeper.h"

#include <algorithm>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"
#include "lockstep/base/log.h"

namespace lockstep::train {
namespace {

// What rank 0 takes from all ranks together: beyond some hundred of them each sends fewer steps.
constexpr size_t kMostTraceBytes = 64 << 20;

// A step has five phases and what stands between them; a batch three, and in a pipeline up to five a
// micro-batch; a bucket one, and no more buckets than parameters.
constexpr int64_t kSpansAStep = 40, kSpansABatch = 3, kSpansAMicroBatch = 5;
constexpr int64_t kMostSpans = 4 << 20;

int64_t spans_a_step(const Settings& settings, size_t parameters) {
  const auto& parallel = settings.parallel;
  const int64_t pieces = parallel.pipeline > 1 ? kSpansAMicroBatch * parallel.micro_batches : 0;
  const int64_t batches = std::min<int64_t>(settings.train.accumulate, kMostSpans);
  return kSpansAStep + batches * (kSpansABatch + pieces) + static_cast<int64_t>(parameters);
}

// A ring may have turned further on one rank than on another: the steps of which all have something.
int64_t steps_of_all(const std::vector<RankTrace>& ranks) {
  int64_t first = 1, last = 0;  // what comes before the first step is of none
  for (const auto& rank : ranks) {
    if (rank.spans.empty()) return 0;
    const auto by_step = [](const Span& a, const Span& b) { return a.step < b.step; };
    const auto [low, high] = std::minmax_element(rank.spans.begin(), rank.spans.end(), by_step);
    first = std::max(first, low->step);
    last = std::max(last, high->step);
  }
  return last - first + 1;
}

}  // namespace

std::shared_ptr<Tracer> make_tracer(const Settings& settings, size_t parameters) {
  const int64_t steps = settings.train.trace;
  if (steps <= 0) return nullptr;
  const int64_t a_step = spans_a_step(settings, parameters);
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
  const auto most = kMostTraceBytes / static_cast<size_t>(team_.world());
  const auto spans = team_.all_gather(packed(tracer_->spans(), most));
  const auto hosts = team_.all_gather(team_.job().host);
  if (!team_.first()) return;
  std::vector<RankTrace> ranks;
  for (size_t i = 0; i < spans.size(); ++i)
    ranks.push_back({static_cast<int>(i), hosts[i], unpacked(spans[i]), first_[i], last[i]});
  write(ranks, format("the last {} steps of all ranks", std::min(tracer_->steps(), steps_of_all(ranks))));
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
