#include "trainer/observe/trace_file.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <limits>
#include <sstream>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"
#include "lockstep/base/log.h"

namespace lockstep::train {
namespace {

constexpr int kRounds = 16;

std::string measured(const Team& team, const Tracer& tracer) {
  team.barrier();  // they start together, so that few of the rounds are spent waiting
  std::string text;
  std::vector<double> nothing{0};
  for (int i = 0; i < kRounds; ++i) {
    const auto before = tracer.now();
    team.sum(nothing);
    text += format("{} {}\n", before, tracer.now());
  }
  return text;
}

std::vector<base::ClockRound> rounds_in(const std::string& text) {
  std::istringstream lines(text);
  std::vector<base::ClockRound> rounds(kRounds);
  for (auto& [before, after] : rounds) lines >> before >> after;
  return rounds;
}

}  // namespace

std::vector<ClockReading> compare_clocks(const Team& team, const Tracer& tracer) {
  const auto texts = team.all_gather(measured(team, tracer));
  const auto first = rounds_in(texts[0]);
  std::vector<ClockReading> readings = {{first.back().after, 0, 0}};
  for (size_t rank = 1; rank < texts.size(); ++rank)
    readings.push_back(base::compare_rounds(first, rounds_in(texts[rank])));
  return readings;
}

double aligned(int64_t moment, const ClockReading& first, const ClockReading& last) {
  const auto between = static_cast<double>(last.when - first.when);
  const double part = between > 0 ? static_cast<double>(moment - first.when) / between : 0;
  return static_cast<double>(moment) - first.ahead - std::clamp(part, 0.0, 1.0) * (last.ahead - first.ahead);
}

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

namespace {

constexpr int kTrainingTrack = 0, kFirstLane = 1;

std::string quoted(const std::string& text) {
  return nlohmann::json(text).dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
}

// A span on the common time line, in microseconds, and the track that it stands on.
struct Placed {
  Span span;
  double begin, end;
  int track;
};

// Buckets that are on their way at the same time stand on lanes of their own: what shares a track must nest.
void spread_over_lanes(std::vector<Placed>& placed) {
  std::vector<double> free_from;
  for (auto& one : placed) {
    if (one.span.kind != SpanKind::all_reduce) continue;
    size_t lane = 0;
    while (lane < free_from.size() && free_from[lane] > one.begin) ++lane;
    if (lane == free_from.size()) free_from.push_back(0);
    free_from[lane] = one.end;
    one.track = kFirstLane + static_cast<int>(lane);
  }
}

std::vector<Placed> place(const RankTrace& rank) {
  std::vector<Placed> placed;
  for (const auto& span : rank.spans) {
    placed.push_back({span, aligned(span.begin, rank.first, rank.last) / 1e3,
                      aligned(span.end, rank.first, rank.last) / 1e3, kTrainingTrack});
  }
  std::ranges::stable_sort(placed, [](const Placed& a, const Placed& b) {
    return a.begin != b.begin ? a.begin < b.begin : a.end > b.end;
  });
  spread_over_lanes(placed);
  return placed;
}

std::string name_event(const char* what, int pid, int track, const std::string& name) {
  return format(R"({{"ph":"M","name":"{}","pid":{},"tid":{},"args":{{"name":{}}}}})", what, pid, track,
                quoted(name));
}

std::string sort_event(int pid) {
  return format(R"({{"ph":"M","name":"process_sort_index","pid":{},"tid":0,"args":{{"sort_index":{}}}}})",
                pid, pid);
}

std::string arguments_of(const Span& span) {
  auto text = format(R"("step":{})", span.step);
  if (span.bucket >= 0) text += format(R"(,"bucket":{},"bytes":{})", span.bucket, span.bytes);
  return text;
}

std::string span_event(const Placed& one, int pid, double zero) {
  return format(
      R"({{"ph":"X","name":"{}","cat":"{}","pid":{},"tid":{},"ts":{:.3f},"dur":{:.3f},"args":{{{}}}}})",
      name_of(one.span.kind), one.span.kind == SpanKind::all_reduce ? "communication" : "training", pid,
      one.track, one.begin - zero, std::max(0.0, one.end - one.begin), arguments_of(one.span));
}

std::string clock_of(const RankTrace& rank) {
  return format(
      R"({{"rank":{},"host":{},"ahead_us_begin":{:.3f},"error_us_begin":{:.3f},"ahead_us_end":{:.3f},"error_us_end":{:.3f}}})",
      rank.rank, quoted(rank.host), rank.first.ahead / 1e3, rank.first.error / 1e3, rank.last.ahead / 1e3,
      rank.last.error / 1e3);
}

class Lines {
 public:
  explicit Lines(const base::ByteSink& sink) : sink_(sink) {}
  void add(const std::string& line) {
    text_ += (first_ ? "" : ",\n") + line;
    first_ = false;
    if (text_.size() > 1 << 20) flush();
  }
  void flush() {
    sink_(text_.data(), text_.size());
    text_.clear();
  }

 private:
  const base::ByteSink& sink_;
  std::string text_;
  bool first_ = true;
};

void add_rank(Lines& lines, const RankTrace& rank, const std::vector<Placed>& placed, double zero) {
  lines.add(name_event("process_name", rank.rank, 0, format("rank {} on {}", rank.rank, rank.host)));
  lines.add(sort_event(rank.rank));
  int tracks = kFirstLane;
  for (const auto& one : placed) tracks = std::max(tracks, one.track + 1);
  for (int track = 0; track < tracks; ++track) {
    lines.add(name_event("thread_name", rank.rank, track,
                         track == kTrainingTrack ? "training"
                         : track == kFirstLane   ? "buckets"
                                                 : "buckets, more"));
  }
  for (const auto& one : placed) lines.add(span_event(one, rank.rank, zero));
}

}  // namespace

std::string packed(const std::vector<Span>& spans, size_t most_bytes) {
  std::vector<std::string> lines;
  size_t bytes = 0;
  for (auto span = spans.rbegin(); span != spans.rend(); ++span) {
    auto line = format("{} {} {} {} {} {}\n", static_cast<int>(span->kind), span->begin,
                       span->end - span->begin, span->step, span->bucket, span->bytes);
    bytes += line.size();
    if (bytes > most_bytes) break;
    lines.push_back(std::move(line));
  }
  std::string text;
  for (auto line = lines.rbegin(); line != lines.rend(); ++line) text += *line;
  return text;
}

std::vector<Span> unpacked(const std::string& text) {
  std::istringstream lines(text);
  std::vector<Span> spans;
  int kind = 0;
  int64_t length = 0;
  for (Span span; lines >> kind >> span.begin >> length >> span.step >> span.bucket >> span.bytes;) {
    span.kind = static_cast<SpanKind>(kind);
    span.end = span.begin + length;
    spans.push_back(span);
  }
  return spans;
}

void write_trace(const std::vector<RankTrace>& ranks, const std::string& note, const base::ByteSink& sink) {
  std::vector<std::vector<Placed>> placed;
  double zero = std::numeric_limits<double>::infinity();
  for (const auto& rank : ranks) {
    placed.push_back(place(rank));
    if (!placed.back().empty()) zero = std::min(zero, placed.back().front().begin);
  }
  auto head = "{\"displayTimeUnit\":\"ms\",\"otherData\":{\"note\":" + quoted(note) + ",\"clocks\":[";
  for (size_t i = 0; i < ranks.size(); ++i) head += (i ? "," : "") + clock_of(ranks[i]);
  head += "]},\n\"traceEvents\":[\n";
  sink(head.data(), head.size());
  Lines lines(sink);
  for (size_t i = 0; i < ranks.size(); ++i) add_rank(lines, ranks[i], placed[i], zero);
  lines.flush();
  sink("\n]}\n", 4);
}

}  // namespace lockstep::train
