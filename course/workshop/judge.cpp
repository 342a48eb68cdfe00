#include "course/workshop/judge.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"
#include "lockstep/base/json.h"
#include "lockstep/base/text.h"

namespace lockstep::workshop {
namespace {

std::map<std::string, Judge>& judges() {
  static std::map<std::string, Judge> table;
  return table;
}

double number_of(const nlohmann::json& value) {
  constexpr auto kInfinity = std::numeric_limits<double>::infinity();
  if (value.is_number()) return value.get<double>();
  if (value == "inf" || value == "-inf") return value == "inf" ? kInfinity : -kInfinity;
  return std::numeric_limits<double>::quiet_NaN();
}

// a line that is cut off or forged is no fact
void add_fact(const nlohmann::json& fact, std::vector<Shown>& facts) {
  if (!fact.is_object() || !fact.contains("name") || !fact["name"].is_string()) return;
  Shown shown{fact["name"], {}, {}};
  if (fact.contains("text") && fact["text"].is_string()) shown.text = fact["text"];
  if (fact.contains("numbers") && fact["numbers"].is_array()) {
    for (const auto& value : fact["numbers"]) shown.numbers.push_back(number_of(value));
  }
  facts.push_back(std::move(shown));
}

}  // namespace

RankRun::RankRun(int rank, Ending ending) : rank_(rank), ending_(std::move(ending)) {
  std::istringstream lines(ending_.facts);
  for (std::string line; std::getline(lines, line);) {
    add_fact(base::parse_json(line), shown_);
    if (auto fault = base::fault_in(line)) ending_.error = std::move(fault);
  }
}

bool RankRun::has(const std::string& name) const {
  for (const auto& fact : shown_) {
    if (fact.name == name) return true;
  }
  return false;
}

const Shown& RankRun::last(const std::string& name) const {
  for (auto fact = shown_.rbegin(); fact != shown_.rend(); ++fact) {
    if (fact->name == name) return *fact;
  }
  throw NotYet(
      format("rank {} never showed `{}`", rank_, name),
      format("the line show(\"{}\", ...) is part of the exercise: is it still there, and does rank {} "
             "come to it?",
             name, rank_));
}

double RankRun::number(const std::string& name) const {
  const auto& row = numbers(name);
  if (row.size() == 1) return row.front();
  throw NotYet(format("rank {} showed {} numbers as `{}`, and one is wanted", rank_, row.size(), name));
}

const std::vector<double>& RankRun::numbers(const std::string& name) const {
  return last(name).numbers;
}

const std::string& RankRun::text(const std::string& name) const {
  return last(name).text;
}

std::vector<std::vector<double>> RankRun::rows(const std::string& name) const {
  std::vector<std::vector<double>> found;
  for (const auto& fact : shown_) {
    if (fact.name == name) found.push_back(fact.numbers);
  }
  return found;
}

Judge find_judge(const std::string& exercise) {
  const auto found = judges().find(exercise);
  return found == judges().end() ? nullptr : found->second;
}

bool add_judge(const char* exercise, Judge judge) {
  return judges().emplace(exercise, judge).second;
}

bool near(double is, double wanted, double tolerance) {
  return std::abs(is - wanted) <= tolerance * std::max(1.0, std::abs(wanted));
}

bool near(const Row& is, const Row& wanted, double tolerance) {
  return std::equal(is.begin(), is.end(), wanted.begin(), wanted.end(),
                    [&](double a, double b) { return near(a, b, tolerance); });
}

void expect(bool is_right, const std::string& what, const std::vector<Guess>& guesses,
            const std::string& think) {
  if (is_right) return;
  for (const auto& guess : guesses) {
    if (guess.is) throw NotYet(what + ": " + guess.what, guess.think);
  }
  throw NotYet(what, think);
}

Row of_all(const Run& run, const std::string& name) {
  Row row;
  for (const auto& rank : run.ranks) row.push_back(rank.number(name));
  return row;
}

Row flat(const Rows& rows) {
  Row row;
  for (const auto& part : rows) row.insert(row.end(), part.begin(), part.end());
  return row;
}

std::vector<std::string> as_words(const Row& numbers) {
  std::vector<std::string> words;
  for (const double number : numbers) words.push_back(format("{:.17g}", number));
  return words;
}

std::string shown(double number) {
  return format("{:.6g}", number);
}

std::string shown(const std::vector<double>& numbers) {
  constexpr size_t kMost = 12;
  std::vector<std::string> words;
  for (const double number : numbers) words.push_back(shown(number));
  if (words.size() > kMost) {
    words[kMost - 2] = "...";
    words[kMost - 1] = words.back();
    words.resize(kMost);
  }
  return base::join(words, " ");
}

namespace {

// libstdc++'s word for an index behind the end
bool is_out_of_range(const Fault& error) {
  return error.what.find("range_check") != std::string::npos;
}

}  // namespace

Run run_threads_of(Attempt& attempt, const std::vector<std::string>& args, const std::string& label,
                   const std::string& named) {
  try {
    return attempt.run({.world = 1, .label = label, .args = args});
  } catch (const LeftWithError& error) {
    const char* think =
        is_out_of_range(error.error())
            ? "a vector has no such place: how many numbers has the one that is received into?"
            : "";
    throw NotYet(format("{}:\n{}", named, error.said()), think);
  }
}

namespace {

// an error in a collective, which another rank may have caused
bool met_another(const Ending& ending) {
  return ending.error && !ending.error->met_in.call.empty();
}

bool failed_alone(const RankRun& rank) {
  return !rank.ending().is_well() && !met_another(rank.ending());
}

}  // namespace

void require_no_own_failure(const Run& run, const std::string& folder) {
  if (std::any_of(run.ranks.begin(), run.ranks.end(), failed_alone)) require_good_end(run, {}, folder);
}

bool agree(double is, double wanted) {
  return workshop::near(is, wanted, 1e-5);
}

bool agree(const Row& is, const Row& wanted) {
  return near(is, wanted, 1e-5);
}

void require_one_model(const Run& run, const std::string& name) {
  const auto& first = run.ranks.front().numbers(name);
  for (const auto& rank : run.ranks) {
    if (agree(rank.numbers(name), first)) continue;
    throw NotYet(format("with {} ranks, {} is {} on rank 0 and {} on rank {}: each trains a model of its own",
                        run.ranks.size(), name, shown(first), shown(rank.numbers(name)), rank.rank()),
                 "who averages the gradients? forward() must be called on what ddp() returned");
  }
}

}  // namespace lockstep::workshop
