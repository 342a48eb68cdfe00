#include "tools/doctor/node/judging.h"

#include <hwloc.h>

#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"
#include "lockstep/launch/process/grouped.h"
#include "tools/doctor/node/bitmap.h"

namespace lockstep::doctor {
namespace {

Bitmap bitmap_of(const std::string& list) {
  Bitmap bitmap(hwloc_bitmap_alloc());
  if (list.empty() || hwloc_bitmap_list_sscanf(bitmap.get(), list.c_str()) != 0)
    hwloc_bitmap_zero(bitmap.get());
  return bitmap;
}

}  // namespace

Finding failure_of(const std::exception& error) {
  const auto* known = dynamic_cast<const Error*>(&error);
  const std::string what = error.what();
  const std::string where = known && !known->where().empty() ? " (" + known->where() + ")" : "";
  return fail(what.substr(0, what.find('\n')) + where, known ? known->hint() : "");
}

Findings of_ranks(const Picture& picture, const std::function<std::optional<Finding>(const RankFacts&)>& look,
                  const std::function<Finding()>& otherwise) {
  Findings findings;
  std::vector<std::vector<int>> ranks;
  for (const RankFacts& facts : picture.ranks) {
    const auto finding = look(facts);
    if (!finding) continue;
    const auto same = std::find_if(findings.begin(), findings.end(), [&](const Finding& other) {
      return other.says == finding->says && other.verdict == finding->verdict;
    });
    if (same == findings.end()) {
      findings.push_back(*finding);
      ranks.push_back({facts.job.rank});
    } else {
      ranks[static_cast<size_t>(same - findings.begin())].push_back(facts.job.rank);
    }
  }
  for (size_t i = 0; i < findings.size(); ++i)
    findings[i].says = launch::with_ranks(findings[i].says, ranks[i], picture.ranks.size());
  if (findings.empty()) findings.push_back(otherwise());
  return findings;
}

std::vector<Machine> machines_of(const Picture& picture) {
  std::vector<Machine> machines;
  for (const RankFacts& facts : picture.ranks) {
    const auto found = std::find_if(machines.begin(), machines.end(), [&](const Machine& machine) {
      return machine.front()->machine == facts.machine;
    });
    if (found == machines.end()) {
      machines.push_back({&facts});
    } else {
      found->push_back(&facts);
    }
  }
  return machines;
}

Findings of_machines(const Picture& picture, const std::function<Findings(const Machine&)>& look,
                     const std::function<Finding()>& otherwise) {
  Findings findings;
  const auto machines = machines_of(picture);
  for (const Machine& machine : machines) {
    for (Finding& finding : look(machine)) {
      if (machines.size() > 1) finding.says = format("{}: {}", machine.front()->job.host, finding.says);
      findings.push_back(std::move(finding));
    }
  }
  if (findings.empty()) findings.push_back(otherwise());
  return findings;
}

std::string bytes(long long number) {
  if (number < 0) return "unlimited";
  static constexpr const char* units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(number);
  size_t unit = 0;
  for (; value >= 1024 && unit + 1 < std::size(units); ++unit) value /= 1024;
  return unit == 0 || value >= 100 ? format("{:.0f} {}", value, units[unit])
                                   : format("{:.1f} {}", value, units[unit]);
}

std::string ranks_in(const std::vector<int>& ranks) {
  if (ranks.size() == 1) return format("rank {}", ranks.front());
  if (ranks.size() == 2) return format("ranks {} and {}", ranks[0], ranks[1]);
  return "ranks " + launch::ranges(ranks);
}

std::string ranks_in(const Machine& machine) {
  std::vector<int> ranks;
  for (const RankFacts* facts : machine) ranks.push_back(facts->job.rank);
  return ranks_in(ranks);
}

bool overlap(const std::string& a, const std::string& b) {
  return hwloc_bitmap_intersects(bitmap_of(a).get(), bitmap_of(b).get()) != 0;
}

int threads_in(const std::vector<std::string>& masks) {
  const Bitmap all = bitmap_of("");
  for (const auto& mask : masks) hwloc_bitmap_or(all.get(), all.get(), bitmap_of(mask).get());
  return hwloc_bitmap_weight(all.get());
}

}  // namespace lockstep::doctor
