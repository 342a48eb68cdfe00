#include "trainer/loop/run_log.h"

#include <torch/version.h>
#include <unistd.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "lockstep/base/error.h"
#include "lockstep/base/files/file.h"
#include "lockstep/base/files/whole_file.h"
#include "lockstep/base/format.h"
#include "lockstep/base/json.h"
#include "lockstep/base/log.h"
#include "lockstep/base/text.h"
#include "lockstep/comm/cuda_plugin.h"
#include "trainer/config/keys.h"
#include "trainer/run_folder/folder.h"

namespace lockstep::train {
namespace {

using Json = nlohmann::ordered_json;
using Seconds = std::chrono::duration<double>;

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return Seconds(std::chrono::steady_clock::now() - begin).count();
}

double rate(int64_t samples, double seconds) {
  return seconds > 0 ? static_cast<double>(samples) / seconds : 0;
}

std::unique_ptr<run_folder::Recorder> open_recorder(const Settings& settings, const Team& team,
                                                    const TrainingState& state, const RunAttempt& attempt) {
  if (!attempt.folder) return nullptr;
  run_folder::RunStatus status;
  status.step = state.step;
  status.epoch = state.epoch;
  status.epochs = settings.train.epochs;
  status.attempt = attempt.number;
  if (attempt.before) {
    status.cost = attempt.before->cost;
    const auto lost = run_folder::lost_since(*attempt.before, state.step);
    status.lost = {attempt.before->lost.seconds + lost.seconds, attempt.before->lost.steps + lost.steps};
  }
  const char* allocation = std::getenv("LOCKSTEP_ALLOCATION");  // by lockstep job
  run_folder::begin_attempt(status.cost, allocation ? allocation : "", attempt.cores, attempt.gpus);
  status.world = team.world();
  status.host = team.job().host;
  status.job_id = team.job().job_id;
  status.pid = ::getpid();
  status.seconds = state.seconds;
  if (!attempt.found.empty())
    status.checkpoint = "checkpoints/" + std::filesystem::path(attempt.found).filename().string();
  run_folder::SettingTexts texts;
  for (const auto& key : config::keys())
    if (key.rules.about != config::About::place && config::may_be_used(key, settings))
      texts.emplace_back(key.path, config::value_text(key, settings));
  return std::make_unique<run_folder::Recorder>(attempt.folder, status, state.metrics_offset, texts);
}

}  // namespace

std::optional<GpuMemory> peak_gpu_memory(const Team& team) {
  if (!team.device().is_cuda()) return {};
  const int device = team.device().index();
  std::vector<double> most{static_cast<double>(comm::cuda().peak_bytes(device)),
                           -static_cast<double>(comm::cuda().total_bytes(device))};
  team.max(most);
  return GpuMemory{most[0], -most[1]};
}

RunLog::RunLog(const Settings& settings, const Mesh& mesh, const TrainingState& state, int64_t total_steps,
               const RunAttempt& attempt)
    : settings_(settings),
      team_(mesh.all()),
      shares_(mesh.data().world()),
      total_steps_(total_steps),
      first_step_(state.step),
      seconds_before_(state.seconds),
      cost_before_(attempt.before ? attempt.before->cost : run_folder::Cost()),
      reads_node_(team_.job().local_rank == 0),
      reads_gpu_(!attempt.gpus_read.empty()),
      energy_(reads_node_ ? "/sys/class/powercap" : "", attempt.gpus_read),
      console_(team_.first() && !run_folder::trainings_are_silent()),
      recorder_(open_recorder(settings, team_, state, attempt)) {}

// The energy of a run is known if each attempt measured it with the same counters, on all nodes and GPUs.
void RunLog::exchange_usage() {
  const auto own = energy_.read();
  const auto kilobytes = base::number_in(base::field("/proc/self/status", "VmHWM")).value_or(0);
  std::vector<double> peak = {static_cast<double>(kilobytes) * 1024};
  std::vector<double> sums;  // for each counter: who reads it, who could, and joules
  for (const auto& [reads, joules] : {std::pair{reads_node_, own.processors}, {reads_gpu_, own.gpu}})
    sums.insert(sums.end(), {reads ? 1.0 : 0.0, joules ? 1.0 : 0.0, joules.value_or(0)});
  team_.max(peak);
  team_.sum(sums);
  if (!recorder_) return;
  std::vector<std::string> counters;
  double joules = cost_before_.energy_joules;
  for (const auto& [name, at] : {std::pair{"RAPL", size_t{0}}, {"NVML", size_t{3}}}) {
    if (sums[at] == 0 || sums[at + 1] != sums[at]) continue;
    counters.emplace_back(name);
    joules += sums[at + 2];
  }
  const auto source = base::join(counters, ", ");
  const bool is_whole = cost_before_.until == 0 || cost_before_.energy_source == source;
  recorder_->note([&](run_folder::RunStatus& status) {
    auto& cost = status.cost;
    cost.peak_memory = std::max(cost.peak_memory, peak[0]);
    if (source.empty() && cost.energy_source.starts_with("Slurm")) return;  // lockstep job adds this one's
    cost.energy_source = is_whole ? source : "";
    cost.energy_joules = joules;
  });
}

double RunLog::seconds() const {
  return seconds_before_ + seconds_since(begin_.moment);
}

// Samples/s of all ranks.
double RunLog::speed_since(const Mark& mark) const {
  return rate((samples_ - mark.samples) * shares_, seconds_since(mark.moment));
}

void RunLog::begin_epoch() {
  epoch_begin_ = now();
}

void RunLog::took_step(const TrainingState& state, int64_t samples) {
  samples_ += samples;
  note_place(state);
}

bool RunLog::is_due(const TrainingState& state) const {
  const int64_t every = settings_.train.log_every;
  return every > 0 && state.step_in_epoch % every == 0;
}

void RunLog::step(const TrainingState& state, double loss, double lr) {
  console_.line(format("Epoch [{}/{}], Step [{}/{}], Loss: {:.4f}", state.epoch + 1, settings_.train.epochs,
                       state.step_in_epoch, steps_of_epoch_, loss));
  const double speed = speed_since(line_begin_);
  line_begin_ = now();
  if (!recorder_) return;
  recorder_->add(state.step,
                 {{"event", "step"},
                  {"step", state.step},
                  {"epoch", state.epoch},
                  {"loss", loss},
                  {"lr", lr},
                  {"samples_per_second", speed}},
                 {{"train/loss", loss}, {"train/lr", lr}, {"train/samples_per_second", speed}});
  recorder_->note([&](run_folder::RunStatus& status) { status.loss = loss; });
}

void RunLog::progress(const TrainingState& state, double loss) {
  if (!console_.wants_progress()) return;
  const auto steps = static_cast<double>(std::max<int64_t>(1, state.step - first_step_));
  const auto left = static_cast<double>(std::max<int64_t>(0, total_steps_ - state.step));
  console_.progress({.epoch = state.epoch,
                     .epochs = settings_.train.epochs,
                     .step = state.step_in_epoch,
                     .steps = steps_of_epoch_,
                     .loss = loss,
                     .samples_per_second = speed_since(begin_),
                     .seconds_left = left * seconds_since(begin_.moment) / steps});
}

void RunLog::begin_evaluation() {
  clock_.enter(Phase::other);
  console_.clear();
}

void RunLog::epoch(const TrainingState& state, double train_loss, const EpochMetrics& measured) {
  console_.line(format("Epoch {} | Average Loss: {:.4f}", state.epoch, train_loss), base::TextStyle::strong);
  const double took = seconds_since(epoch_begin_.moment);
  Json line = {{"event", "epoch"}, {"epoch", state.epoch}, {"step", state.step}, {"train_loss", train_loss}};
  run_folder::Curves curves = {{"epoch/train_loss", train_loss}, {"epoch/seconds", took}};
  std::string words;
  for (const auto& [name, value] : measured.values) {
    words += format("{}{} {}", words.empty() ? format("Epoch {} | {}: ", state.epoch, measured.by) : ", ",
                    name, measured.counts.contains(name) ? format("{:.0f}", value) : metric_text(value));
    line[name == "loss" ? "eval_loss" : name] = value;
    curves.emplace_back(measured.curves + "/" + name, value);
  }
  this->line(words);
  if (!recorder_) return;
  line["seconds"] = took;
  line["samples_per_second"] = rate((samples_ - epoch_begin_.samples) * shares_, took);
  recorder_->add(state.step, line, curves);
  recorder_->update_soon([&](run_folder::RunStatus& status) {
    status.step = state.step;
    status.epoch = state.epoch + (state.epoch_trained ? 1 : 0);
    status.loss = train_loss;
    if (const auto accuracy = value_of(measured.values, "accuracy")) status.accuracy = accuracy;
    if (const auto reward = value_of(measured.values, "recent_reward")) status.reward = reward;
    status.seconds = seconds();
  });
}

// Each rank's own work shows which one is slow: waiting for the others does not count.
std::vector<PhaseSeconds> RunLog::summarize(const TrainingState& state) {
  std::vector<PhaseSeconds> ranks;
  for (const auto& text : team_.all_gather(Json(clock_.seconds()).dump()))
    ranks.push_back(Json::parse(text).get<PhaseSeconds>());
  const double seconds = seconds_since(begin_.moment);
  const auto hosts = team_.all_gather(team_.job().host);
  const auto own_work = [](const PhaseSeconds& phases) {
    return phases[0] + phases[1] + phases[2] + phases[static_cast<size_t>(Phase::optimizer)];
  };
  PhaseSeconds mean{};
  for (const auto& phases : ranks)
    for (size_t i = 0; i < kPhases; ++i) mean[i] += phases[i] / team_.world();
  const auto slowest = std::ranges::max_element(ranks, {}, own_work);

  console_.line(format("Total {}Training Time: {:.2f}s", settings_.train.mode == TrainMode::ddp ? "DDP " : "",
                       seconds));
  console_.line(format("{}, {:.0f} samples/s", base::counted(state.step - first_step_, "step"),
                       rate(samples_ * shares_, seconds)));
  console_.line("Time per rank: " + phase_table(mean));
  if (const auto memory = peak_gpu_memory(team_))
    console_.line(
        format("Peak GPU memory: {:.2f} GB per rank, of {:.1f} GB", memory->peak / 1e9, memory->total / 1e9));
  if (team_.world() > 1)
    console_.line(format("Slowest rank: {} on {}, {:.2f} s of own work (mean {:.2f} s)",
                         slowest - ranks.begin(), hosts[static_cast<size_t>(slowest - ranks.begin())],
                         own_work(*slowest), own_work(mean)));
  if (!recorder_) return ranks;
  run_folder::Cost cost;
  recorder_->note([&](run_folder::RunStatus& status) { cost = status.cost; });
  run_folder::charge(cost);
  console_.line("Used: " + run_folder::in_words(cost));
  return ranks;
}

void RunLog::note_place(const TrainingState& state) {
  if (!recorder_) return;
  recorder_->note([&](run_folder::RunStatus& status) {
    status.step = state.step;
    status.epoch = state.epoch;
    status.seconds = seconds();
  });
}

void RunLog::tell(const TrainingState& state, run_folder::RunState now, const std::string& reason) {
  note_place(state);
  if (!recorder_) return;
  recorder_->update([&](run_folder::RunStatus& status) {
    status.state = now;
    status.reason = reason;
  });
}

void RunLog::report_failure(const std::string& reason) noexcept {
  if (recorder_) recorder_->report_failure(reason);
}

namespace {

constexpr const char* kFile = "report.json";
constexpr size_t kMostReportBytes = 64 << 20, kMostAttempts = 1000;
constexpr std::chrono::seconds kSeldom{30};  // between two writings that only an evaluation asks for

Json phase_names() {
  Json names = Json::array();
  for (size_t i = 0; i < kPhases; ++i) names.push_back(name_of(static_cast<Phase>(i)));
  return names;
}

// JSON has no infinity: base::as_line() writes null.
Json json_of(const WorstSample& sample) {
  std::string hex;
  for (const auto pixel : sample.pixels) hex += format("{:02x}", static_cast<unsigned>(pixel));
  return {{"sample", sample.number},
          {"loss", sample.loss},
          {"truth", sample.actual},
          {"told", sample.predicted},
          {"probability", sample.probability},
          {"shape", sample.shape},
          {"pixels", hex}};
}

template <class Number>
Json rows_of(const at::Tensor& table) {
  Json rows = Json::array();
  const auto cell = table.accessor<Number, 2>();
  for (int64_t row = 0; row < cell.size(0); ++row) {
    Json line = Json::array();
    for (int64_t column = 0; column < cell.size(1); ++column) line.push_back(cell[row][column]);
    rows.push_back(std::move(line));
  }
  return rows;
}

// Whoever was killed could not say how far it came: the status says how far at least.
void complete(Json& attempt, const run_folder::RunStatus& status) {
  if (!attempt.is_object() || attempt.value("number", Json()) != status.attempt) return;
  if (!attempt.value("ended", Json()).is_null()) return;
  attempt["ended"] = status.updated;
  attempt["step"] = status.step;
}

}  // namespace

RunFacts::RunFacts(const Setup& setup, const RunAttempt& attempt)
    : setup_(setup), attempt_(attempt), json_(std::make_unique<Json>(Json::object())) {
  if (writes()) read_before();
}

RunFacts::~RunFacts() = default;

// Whatever stands there: the report loses earlier attempts at worst, the run nothing.
void RunFacts::read_before() noexcept {
  try {
    const auto path = attempt_.folder->path() / kFile;
    if (!std::filesystem::exists(path)) return;
    auto before = base::parse_json<Json>(
        base::read_small_file(path.string(), kMostReportBytes, "the run's report.json"));
    if (before.is_object() && before.contains("attempts") && before["attempts"].is_array()) {
      *json_ = std::move(before);
    } else {
      log::warning("report.json is damaged: its information about earlier attempts is lost");
    }
  } catch (const std::exception& error) {
    log::warning(describe(error));
  }
}

void RunFacts::begin(int64_t step) {
  const auto hosts = setup_.team->all_gather(setup_.team->job().host);
  if (!writes()) return;
  auto& attempts = (*json_)["attempts"];
  if (attempts.is_array() && attempts.size() >= kMostAttempts) attempts.erase(0);
  if (attempts.is_array() && !attempts.empty() && attempt_.before)
    complete(attempts.back(), *attempt_.before);
  const auto lost =
      attempt_.before ? run_folder::lost_since(*attempt_.before, step) : run_folder::RestartCost();
  attempts.push_back({{"number", attempt_.number},
                      {"state", run_folder::name_of(run_folder::RunState::running)},
                      {"reason", ""},
                      {"began", run_folder::unix_now()},
                      {"ended", nullptr},
                      {"lost_seconds", lost.seconds},
                      {"lost_steps", lost.steps},
                      {"from_step", step},
                      {"step", step},
                      {"world", setup_.team->world()},
                      {"hosts", hosts},
                      {"job_id", setup_.team->job().job_id},
                      {"scheduler", setup_.team->job().scheduler},
                      {"launcher", setup_.team->job().launcher},
                      {"device", setup_.team->device().str()},
                      {"backend", setup_.team->group() ? setup_.backend : "none"},
                      {"threads", setup_.session->threads()},
                      {"program", setup_.program},
                      {"libtorch", TORCH_VERSION}});
  write();
}

void RunFacts::evaluated(const Metrics& metrics, WorstSamples worst, int64_t step, int64_t epoch) {
  worst_ = std::move(worst);
  worst_is_new_ = true;
  if (!writes()) return;
  Json values = Json::object();
  for (const auto& [name, value] : metrics.values()) values[name] = value;
  (*json_)["evaluation"] = {
      {"step", step}, {"epoch", epoch}, {"values", values}, {"classes", setup_.data.class_names}};
  if (const auto* classes = dynamic_cast<const ClassMetrics*>(&metrics))
    (*json_)["evaluation"]["confusion"] = rows_of<int64_t>(classes->confusion());
  if (const auto* numbers = dynamic_cast<const NumberMetrics*>(&metrics))
    (*json_)["evaluation"]["points"] = rows_of<double>(numbers->points());
  if (Clock::now() - written_ > kSeldom) write();
}

void RunFacts::add_worst() {
  if (!worst_is_new_) return;
  const auto worst = worst_.gather(setup_.mesh->data(), *setup_.data.eval);
  if (!writes()) return;
  auto& list = (*json_)["evaluation"]["worst"] = Json::array();
  for (const auto& sample : worst) list.push_back(json_of(sample));
}

void RunFacts::finish(const std::vector<PhaseSeconds>& ranks) {
  const auto memory = peak_gpu_memory(*setup_.team);
  add_worst();
  if (!writes()) return;
  auto& attempt = (*json_)["attempts"].back();
  attempt["phases"] = {{"names", phase_names()}, {"ranks", Json(ranks)}};
  if (memory) attempt["gpu_memory"] = {{"peak", memory->peak}, {"total", memory->total}};
}

void RunFacts::tell(run_folder::RunState state, const std::string& reason, int64_t step,
                    const PhaseSeconds& own) noexcept {
  if (!writes() || !json_->contains("attempts")) return;
  auto& attempt = (*json_)["attempts"].back();
  attempt["state"] = run_folder::name_of(state);
  attempt["reason"] = reason;
  attempt["step"] = step;
  if (state != run_folder::RunState::running) attempt["ended"] = run_folder::unix_now();
  if (!attempt.contains("phases")) {  // the others cannot be asked any more
    attempt["phases"] = {{"names", phase_names()}, {"ranks", Json::array({Json(own)})}};
  }
  write();
}

void RunFacts::write() noexcept {
  try {
    const auto text = base::as_line(*json_) + "\n";
    attempt_.folder->write_whole(kFile, [&](const base::ByteSink& sink) { sink(text.data(), text.size()); });
    written_ = Clock::now();
  } catch (const std::exception& error) {
    log::warning("report.json could not be written\n" + describe(error));
  }
}

}  // namespace lockstep::train
