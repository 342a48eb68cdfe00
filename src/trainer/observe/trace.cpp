#include "trainer/observe/trace.h"

#include <torch/csrc/profiler/stubs/base.h>
#include <torch/types.h>
#include <nlohmann/json.hpp>

#include <array>
#include <cmath>
#include <limits>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"
#include "lockstep/base/json.h"
#include "lockstep/base/log.h"
#include "lockstep/base/python_scalar.h"

namespace lockstep::train {

namespace {

// Without a hook the Reducer multiplies by one over the world's size, and so do we: with three ranks a
// division has other bits (reducer.cpp, mark_variable_ready_dense).
CommHook mean_as_without(const ProcessGroup& group) {
  const auto call = [group](GradBucket& bucket) {
    return hooks::all_reduce(group, bucket.buffer().mul_(base::python_scalar(1.0 / group->getSize())));
  };
  return {call, HookMemory{}};
}

}  // namespace

CommHook with_spans(CommHook hook, const ProcessGroup& group, std::shared_ptr<Tracer> tracer) {
  if (!hook) hook = mean_as_without(group);
  const auto call = [hook, tracer = std::move(tracer)](GradBucket& bucket) {
    Span span = {tracer->now(),        0,
                 tracer->step(),       static_cast<int64_t>(bucket.buffer().nbytes()),
                 SpanKind::all_reduce, static_cast<int16_t>(bucket.index())};
    return hooks::then(hook(bucket), [tracer, span](at::Tensor reduced) mutable {
      span.end = tracer->now();
      tracer->add(span);
      return reduced;
    });
  };
  return {call, hook};
}

namespace {

void push(const std::string& name) {
  torch::profiler::impl::cudaStubs()->rangePush(name.c_str());
}
void pop() {
  torch::profiler::impl::cudaStubs()->rangePop();
}

}  // namespace

void Ranges::close(int left) {
  for (; open_ > left; --open_) pop();
}

void Ranges::begin_step(int64_t number, const char* phase) {
  leave();
  push(format("step {}", number));
  open_ = 1;
  enter(phase);
}

void Ranges::enter(const char* phase) {
  if (open_ == 0) return;
  close(1);
  push(phase);
  open_ = 2;
}

void Ranges::leave() {
  close(0);
}

CommHook with_ranges(CommHook hook, const ProcessGroup& group) {
  if (!hook) hook = mean_as_without(group);
  const auto call = [hook](GradBucket& bucket) {
    push(format("all-reduce of bucket {}", bucket.index()));
    auto future = hook(bucket);
    pop();
    return future;
  };
  return {call, hook};
}

const char* name_of(SpanKind kind) {
  static constexpr std::array<const char*, static_cast<size_t>(SpanKind::count)> kNames = {
      "data",       "forward",    "backward",  "waiting for communication", "optimizer", "other",
      "evaluation", "checkpoint", "all-reduce"};
  return kNames[static_cast<size_t>(kind)];
}

void Tracer::add(const Span& span) noexcept {
  const std::lock_guard lock(mutex_);
  ring_[next_] = span;
  if (++next_ < ring_.size()) return;
  next_ = 0;
  full_ = true;
}

std::vector<Span> Tracer::spans() const {
  const std::lock_guard lock(mutex_);
  const auto middle = ring_.begin() + static_cast<int64_t>(next_);
  std::vector<Span> kept;
  if (full_) kept.assign(middle, ring_.end());
  kept.insert(kept.end(), ring_.begin(), middle);
  const int64_t first = step() - steps_ + 1;
  std::erase_if(kept, [first](const Span& span) { return span.step < first; });
  return kept;
}

namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kMostSpans = 4 << 20;  // of all ranks together
constexpr int kTrainingTrack = 0, kFirstLane = 1;

// A step has five phases and what stands between them; a batch three, and in a pipeline up to five a
// micro-batch; a bucket one, and no more buckets than parameters.
int64_t spans_a_step(const Settings& settings, size_t parameters) {
  constexpr int64_t kAStep = 40, kABatch = 3, kAMicroBatch = 5;
  const auto& parallel = settings.parallel;
  const int64_t pieces = parallel.pipeline > 1 ? kAMicroBatch * parallel.micro_batches : 0;
  const int64_t batches = std::min<int64_t>(settings.train.accumulate, kMostSpans);
  return kAStep + batches * (kABatch + pieces) + static_cast<int64_t>(parameters);
}

// The newest spans, of at most so many.
std::string packed(const std::vector<Span>& spans, size_t most) {
  Json all = Json::array();
  for (size_t i = spans.size() - std::min(spans.size(), most); i < spans.size(); ++i) {
    const auto& span = spans[i];
    all.push_back({static_cast<int>(span.kind), span.begin, span.end, span.step, span.bucket, span.bytes});
  }
  return all.dump();
}

std::vector<Span> unpacked(const std::string& text) {
  std::vector<Span> spans;
  for (const auto& span : Json::parse(text))
    spans.push_back({span[1], span[2], span[3], span[5], static_cast<SpanKind>(span[0].get<int>()), span[4]});
  return spans;
}

// A ring may have turned further on one rank than on another: the steps of which all have something.
int64_t steps_of_all(const std::vector<RankTrace>& ranks) {
  int64_t first = 1, last = 0;  // what comes before the first step belongs to none
  for (const auto& rank : ranks) {
    if (rank.spans.empty()) return 0;
    const auto [low, high] = std::ranges::minmax(rank.spans, {}, &Span::step);
    first = std::max(first, low.step);
    last = std::max(last, high.step);
  }
  return last - first + 1;
}

// A span on the common time line, in microseconds, and the track that it stands on.
struct Placed {
  Span span;
  double begin, end;
  int track;
};

// Buckets that are on their way at the same time stand on lanes of their own: what shares a track must nest.
std::vector<Placed> place(const RankTrace& rank) {
  std::vector<Placed> placed;
  for (const auto& span : rank.spans)
    placed.push_back({span, (static_cast<double>(span.begin) - rank.clock.ahead) / 1e3,
                      (static_cast<double>(span.end) - rank.clock.ahead) / 1e3, kTrainingTrack});
  std::ranges::stable_sort(placed, [](const Placed& a, const Placed& b) {
    return a.begin != b.begin ? a.begin < b.begin : a.end > b.end;
  });
  std::vector<double> free_from;
  for (auto& one : placed) {
    if (one.span.kind != SpanKind::all_reduce) continue;
    size_t lane = 0;
    while (lane < free_from.size() && free_from[lane] > one.begin) ++lane;
    if (lane == free_from.size()) free_from.push_back(0);
    free_from[lane] = one.end;
    one.track = kFirstLane + static_cast<int>(lane);
  }
  return placed;
}

Json meta_event(const char* name, int pid, int track, const Json& args) {
  return {{"ph", "M"}, {"name", name}, {"pid", pid}, {"tid", track}, {"args", args}};
}

double rounded(double microseconds) {
  return std::round(microseconds * 1e3) / 1e3;
}

Json span_event(const Placed& one, int pid, double zero) {
  const auto& span = one.span;
  Json args = {{"step", span.step}};
  if (span.bucket >= 0) args.update(Json{{"bucket", span.bucket}, {"bytes", span.bytes}});
  return {{"ph", "X"},
          {"name", name_of(span.kind)},
          {"cat", span.kind == SpanKind::all_reduce ? "communication" : "training"},
          {"pid", pid},
          {"tid", one.track},
          {"ts", rounded(one.begin - zero)},
          {"dur", rounded(std::max(0.0, one.end - one.begin))},
          {"args", args}};
}

std::vector<Json> events_of(const RankTrace& rank, const std::vector<Placed>& placed, double zero) {
  std::vector<Json> events = {
      meta_event("process_name", rank.rank, 0, {{"name", format("rank {} on {}", rank.rank, rank.host)}}),
      meta_event("process_sort_index", rank.rank, 0, {{"sort_index", rank.rank}})};
  int tracks = kFirstLane;
  for (const auto& one : placed) tracks = std::max(tracks, one.track + 1);
  for (int track = 0; track < tracks; ++track)
    events.push_back(meta_event("thread_name", rank.rank, track,
                                {{"name", track == kTrainingTrack ? "training"
                                          : track == kFirstLane   ? "buckets"
                                                                  : "buckets, more"}}));
  for (const auto& one : placed) events.push_back(span_event(one, rank.rank, zero));
  return events;
}

}  // namespace

std::vector<base::ClockReading> compare_clocks(const Team& team) {
  constexpr int kRounds = 16;
  team.barrier();  // they start together, so that few of the rounds are spent waiting
  Json own = Json::array();
  std::vector<double> nothing{0};
  for (int i = 0; i < kRounds; ++i) {
    const auto before = Tracer::stamp(Tracer::Clock::now());
    team.sum(nothing);
    own.push_back({before, Tracer::stamp(Tracer::Clock::now())});
  }
  std::vector<std::vector<base::ClockRound>> rounds;
  for (const auto& text : team.all_gather(own.dump())) {
    rounds.emplace_back();
    for (const auto& round : Json::parse(text)) rounds.back().push_back({round[0], round[1]});
  }
  std::vector<base::ClockReading> readings = {{rounds[0].back().after, 0, 0}};
  for (size_t rank = 1; rank < rounds.size(); ++rank)
    readings.push_back(base::compare_rounds(rounds[0], rounds[rank]));
  return readings;
}

std::shared_ptr<Tracer> make_tracer(const Settings& settings, size_t parameters) {
  const int64_t steps = settings.train.trace;
  if (steps <= 0) return nullptr;
  const int64_t a_step = spans_a_step(settings, parameters);
  const int64_t room = steps > kMostSpans / a_step ? kMostSpans : steps * a_step;
  return std::make_shared<Tracer>(steps, static_cast<size_t>(room));
}

void TraceKeeper::finish() {
  if (!tracer_) return;
  const auto clocks = compare_clocks(team_);
  const auto most = static_cast<size_t>(kMostSpans / team_.world());
  const auto spans = team_.all_gather(packed(tracer_->spans(), most));
  const auto hosts = team_.all_gather(team_.job().host);
  if (!team_.first()) return;
  std::vector<RankTrace> ranks;
  for (size_t i = 0; i < spans.size(); ++i)
    ranks.push_back({static_cast<int>(i), hosts[i], unpacked(spans[i]), clocks[i]});
  write(ranks, format("the last {} steps of all ranks", std::min(tracer_->steps(), steps_of_all(ranks))));
}

void TraceKeeper::save_own(const std::string& why) noexcept {
  if (tracer_ && !written_)
    write({{team_.rank(), team_.job().host, tracer_->spans(), {}}}, "this rank only: " + why);
}

void TraceKeeper::write(const std::vector<RankTrace>& ranks, const std::string& note) noexcept {
  if (!folder_) return;
  try {
    folder_->write_whole("trace.json", [&](const base::ByteSink& sink) { write_trace(ranks, note, sink); });
    written_ = true;
  } catch (const std::exception& error) {
    log::warning("the trace could not be written\n" + describe(error));
  }
}

void write_trace(const std::vector<RankTrace>& ranks, const std::string& note, const base::ByteSink& sink) {
  std::vector<std::vector<Placed>> placed;
  double zero = std::numeric_limits<double>::infinity();
  Json clocks = Json::array();
  for (const auto& rank : ranks) {
    placed.push_back(place(rank));
    if (!placed.back().empty()) zero = std::min(zero, placed.back().front().begin);
    clocks.push_back({{"rank", rank.rank},
                      {"host", rank.host},
                      {"ahead_us", rank.clock.ahead / 1e3},
                      {"error_us", rank.clock.error / 1e3}});
  }
  const auto put = [&](const std::string& text) { sink(text.data(), text.size()); };
  put("{\"displayTimeUnit\":\"ms\",\"otherData\":" + base::as_line(Json{{"note", note}, {"clocks", clocks}}) +
      ",\n\"traceEvents\":[\n");
  std::string text;
  for (size_t i = 0; i < ranks.size(); ++i) {
    for (const auto& event : events_of(ranks[i], placed[i], zero)) {
      put(std::exchange(text, ",\n"));
      put(base::as_line(event));
    }
  }
  put("\n]}\n");
}

}  // namespace lockstep::train
