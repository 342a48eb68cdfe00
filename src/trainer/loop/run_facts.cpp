#include "trainer/loop/run_facts.h"

#include <torch/version.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/files/file.h"
#include "lockstep/base/files/whole_file.h"
#include "lockstep/base/format.h"
#include "lockstep/base/json.h"
#include "lockstep/base/log.h"
#include "trainer/observe/gpu_memory.h"
#include "trainer/run_folder/lock.h"

namespace lockstep::train {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kFile = "report.json";
constexpr size_t kMostReportBytes = 64 << 20, kMostAttempts = 1000;
constexpr std::chrono::seconds kSeldom{30};  // between two writings that only an evaluation asks for

Json phases_of(const PhaseSeconds& seconds) {
  return Json(std::vector<double>(seconds.begin(), seconds.end()));
}

Json phase_names() {
  Json names = Json::array();
  for (size_t i = 0; i < kPhases; ++i) names.push_back(name_of(static_cast<Phase>(i)));
  return names;
}

Json number_or_null(double value) {
  return std::isfinite(value) ? Json(value) : Json();
}

Json json_of(const WorstSample& sample) {
  std::string hex;
  for (const auto pixel : sample.pixels) hex += format("{:02x}", static_cast<unsigned>(pixel));
  return {{"sample", sample.number},
          {"loss", number_or_null(sample.loss)},
          {"truth", sample.actual},
          {"told", sample.predicted},
          {"probability", sample.probability},
          {"shape", sample.shape},
          {"pixels", hex}};
}

Json rows_of(const at::Tensor& confusion) {
  Json rows = Json::array();
  const auto cell = confusion.accessor<int64_t, 2>();
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
      log::warning("report.json is not what a run writes: what it said of earlier attempts is left out");
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
  const auto lost = attempt_.before ? run_folder::lost_since(*attempt_.before, step) : run_folder::Lost();
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
  for (const auto& [name, value] : metrics.values()) values[name] = number_or_null(value);
  (*json_)["evaluation"] = {
      {"step", step}, {"epoch", epoch}, {"values", values}, {"classes", setup_.data.class_names}};
  if (const auto* classes = dynamic_cast<const ClassMetrics*>(&metrics))
    (*json_)["evaluation"]["confusion"] = rows_of(classes->confusion());
  if (Clock::now() - written_ > kSeldom) write();
}

void RunFacts::add_worst() {
  if (!worst_is_new_) return;
  const auto worst = worst_.gather(setup_.mesh->data(), *setup_.data.eval);
  if (!writes()) return;
  auto& list = (*json_)["evaluation"]["worst"] = Json::array();
  for (const auto& sample : worst) list.push_back(json_of(sample));
}

void RunFacts::finish(const PhaseSeconds& phases) {
  const auto texts = setup_.team->all_gather(phases_of(phases).dump());
  const auto memory = peak_gpu_memory(*setup_.team);
  add_worst();
  if (!writes()) return;
  Json ranks = Json::array();
  for (const auto& text : texts) ranks.push_back(Json::parse(text));
  auto& attempt = (*json_)["attempts"].back();
  attempt["phases"] = {{"names", phase_names()}, {"ranks", ranks}};
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
    attempt["phases"] = {{"names", phase_names()}, {"ranks", Json::array({phases_of(own)})}};
  }
  write();
}

void RunFacts::write() noexcept {
  try {
    const auto path = attempt_.folder->path();
    const auto text = base::as_line(*json_) + "\n";
    base::write_whole((path / kFile).string(),
                      [&](const base::ByteSink& sink) { sink(text.data(), text.size()); },
                      [&] { attempt_.folder->check(path); });
    written_ = Clock::now();
  } catch (const std::exception& error) {
    log::warning("report.json could not be written\n" + describe(error));
  }
}

}  // namespace lockstep::train
