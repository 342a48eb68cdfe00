// The checks of the data and run folders, from every node's first rank: each by itself, then rank 0's file as
// the others see it, and theirs as rank 0 does.
#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <thread>

#include "lockstep/base/descriptor.h"
#include "lockstep/base/error.h"
#include "lockstep/base/files/pack.h"
#include "lockstep/base/format.h"
#include "lockstep/base/paths.h"
#include "lockstep/base/write_all.h"
#include "tools/doctor/job/active.h"
#include "tools/doctor/job/folders.h"
#include "tools/doctor/job/probes.h"
#include "tools/doctor/job/within.h"
#include "trainer/config/config_text.h"
#include "trainer/config/load.h"
#include "trainer/run_folder/lock.h"

namespace lockstep::doctor {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr auto kFolderPatience = 9s;
constexpr auto kAnswer = 5s;  // for a file system to answer
constexpr auto kSee = 5s;     // until a file of another node is seen
constexpr auto kGlance = 20ms;
constexpr const char* kFirst = "first";
constexpr const char* kYes = "yes";

// Where the job reads and writes; as rank 0 is told.
struct Places {
  std::string data, runs;
};

Places places_of(const DoctorSettings& asked) {
  Places places{asked.data, asked.runs.empty() ? RunSettings().dir : asked.runs};
  if (!asked.config.empty()) {
    const auto read = config::read_config_text(asked.config);
    const auto settings = config::load_settings(read.text, read.name, {}, asked.environment).settings;
    if (asked.data.empty()) places.data = settings.data.root;
    if (asked.runs.empty()) places.runs = settings.run.dir;
  }
  if (!places.data.empty()) places.data = fs::absolute(base::find_path(places.data)).string();
  places.runs = fs::absolute(places.runs).string();
  return places;
}

// Rank 0's on every rank.
std::string to_all(const Bench& bench, const std::string& own) {
  return bench.talk.round("", kFolderPatience, [&](const Texts&) { return std::vector{own}; }).reply;
}

// Rank 0's, or its error, on every rank; nothing where it was not heard.
std::string places_of_rank_zero(const Bench& bench) {
  std::string own;
  if (bench.talk.rank() == 0)
    own = base::pack_outcome([&] {
      const auto places = places_of(bench.settings);
      return base::pack_texts({places.data, places.runs});
    });
  return to_all(bench, own);
}

// With all above them: a finding may name the nearest that is there.
void hide_places(const std::vector<std::string>& places, std::vector<std::string>& paths) {
  for (const auto& place : places)
    for (fs::path path = place; path.has_relative_path(); path = path.parent_path())
      paths.push_back(path.string());
}

struct Seen {
  std::vector<FolderView> views;  // on rank 0: its own first
  Heard heard;                    // a reply where a file can be put there
};

std::vector<FolderView> views_in(const Texts& texts) {
  std::vector<FolderView> views;
  for (const auto& text : texts)
    if (text && !text->empty()) views.push_back(unpack_view(*text));
  return views;
}

bool may_share(const std::vector<FolderView>& views) {
  return !views.empty() && views.front().answered && views.front().unwritable.empty();
}

Seen look(const Bench& bench, const std::string& path, Purpose purpose) {
  const Job& job = bench.runtime.job();
  std::string own;
  if (job.rank == 0 || job.local_rank == 0) {
    auto view = view_of(path, purpose, kAnswer);
    view.rank = job.rank;
    view.node = job.node_rank;
    view.host = job.host;
    own = pack(view);
  }
  Seen seen;
  seen.heard = bench.talk.round(own, kFolderPatience, [&](const Texts& texts) {
    seen.views = views_in(texts);
    return std::vector<std::string>{may_share(seen.views) ? kYes : ""};
  });
  return seen;
}

bool appears(const fs::path& file, const std::string& want, double& after) {
  const auto begin = Clock::now();
  do {
    std::ifstream text(file);
    std::string word;
    if (text >> word && word == want) {
      after = std::chrono::duration<double>(Clock::now() - begin).count();
      return true;
    }
    std::this_thread::sleep_for(kGlance);
  } while (Clock::now() - begin < kSee);
  return false;
}

// The system's reason where it fails.
std::string put(const fs::path& file, const std::string& word) {
  base::Descriptor open(::open(file.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0644));
  if (open && base::write_all(open.number(), word) && ::fsync(open.number()) == 0 && open.close()) return "";
  return std::strerror(errno);
}

std::string word_of(int rank, const std::string& folder) {
  return format("{}-{}", fs::path(folder).filename().string(), rank);
}

// What rank 0 puts into the run folder, gone with it.
class LockProbe {
 public:
  explicit LockProbe(const std::string& there) : folder_(there, kProbeName, Probe::Kind::folder) {
    const auto failed = put(fs::path(path()) / kFirst, word_of(0, path()));
    if (!failed.empty()) throw Error(failed, there);
    lock_ = run_folder::RunLock::take(path());
  }
  LockProbe(const LockProbe&) = delete;
  LockProbe& operator=(const LockProbe&) = delete;

  const std::string& path() const { return folder_.path(); }

 private:
  Probe folder_;
  std::optional<run_folder::RunLock> lock_;
};

void try_lock(const std::string& folder, FolderAccess& shared) {
  const base::Descriptor file(::open((fs::path(folder) / "lock").c_str(), O_RDWR | O_CLOEXEC));
  if (!file) return;
  const bool taken = ::flock(file.number(), LOCK_EX | LOCK_NB) == 0;
  if (!taken && errno != EWOULDBLOCK) shared.lock_error = std::strerror(errno);
  if (taken) ::flock(file.number(), LOCK_UN);
  shared.lock_held = run_folder::in_use(folder);
  if (taken && shared.lock_held) shared.lock_error = "they hold on one node alone";
}

FolderAccess share(const Job& job, const std::string& folder) {
  FolderAccess shared{.rank = job.rank, .host = job.host, .unwritten = {}, .lock_error = {}};
  if (!appears(fs::path(folder) / kFirst, word_of(0, folder), shared.seen_after)) return shared;
  shared.unwritten = put(fs::path(folder) / std::to_string(job.rank), word_of(job.rank, folder));
  const auto locks = within<FolderAccess>(kAnswer, [folder, shared]() mutable {
    try_lock(folder, shared);
    return shared;
  });
  if (locks) return *locks;
  shared.lock_hangs = true;
  return shared;
}

// A node's first rank tries the lock; alone, rank 0 tries its own lock.
std::string try_probe(const Bench& bench, const std::string& folder) {
  const Job& job = bench.runtime.job();
  const bool asked = job.nodes == 1 ? job.rank == 0 : job.local_rank == 0 && job.rank != 0;
  return asked && !folder.empty() ? pack(share(job, folder)) : "";
}

std::vector<FolderAccess> shared_in(const Heard& heard, const std::string& folder) {
  std::vector<FolderAccess> shared;
  for (const auto& text : heard.texts) {
    if (!text || text->empty()) continue;
    shared.push_back(unpack_shared(*text));
    auto& one = shared.back();
    double after = 0;
    if (one.seen_after >= 0 && one.unwritten.empty())
      one.arrived = appears(fs::path(folder) / std::to_string(one.rank), word_of(one.rank, folder), after);
  }
  return shared;
}

void add(Findings& findings, Findings more) {
  for (auto& finding : more) findings.push_back(std::move(finding));
}

struct MadeProbe {
  std::shared_ptr<LockProbe> probe;
  std::string failed = {};
};

// Nothing where the file system did not answer: the thread that asks is left behind.
std::optional<MadeProbe> make_probe(const std::string& there) {
  return within<MadeProbe>(kAnswer, [there]() -> MadeProbe {
    try {
      return {std::make_shared<LockProbe>(there)};
    } catch (const Error& error) {
      return {nullptr, error.what()};
    }
  });
}

Finding no_probe(const FolderView& first, const std::optional<MadeProbe>& made) {
  if (!made) return hanging_lock(first.host, first.there);
  return fail(format("no folder can be made in {}: {}", first.there, made->failed),
              "look at the quota of files there, or set run.dir elsewhere");
}

Findings try_sharing(const Bench& bench, const std::vector<FolderView>& views) {
  std::optional<MadeProbe> made;
  if (bench.talk.rank() == 0) made = make_probe(views.front().there);
  const auto folder = to_all(bench, made && made->probe ? made->probe->path() : "");
  const auto heard = bench.talk.round(try_probe(bench, folder), kFolderPatience + kSee);
  if (!bench.speaks()) return {};
  if (!heard.why.empty()) return {silence(bench, heard)};
  if (folder.empty()) return {no_probe(views.front(), made)};
  return judge_sharing(views.front(), views, shared_in(heard, folder));
}

Findings look_at_data(const Bench& bench, const std::string& path) {
  if (path.empty()) return {fine("no data folder was named: give a config, or --data FOLDER")};
  const auto seen = look(bench, path, Purpose::to_read);
  if (!seen.heard.why.empty()) return {silence(bench, seen.heard)};
  return bench.speaks() ? judge_data_folder(path, seen.views) : Findings{};
}

Findings look_at_runs(const Bench& bench, const std::string& path) {
  const auto seen = look(bench, path, Purpose::to_write);
  if (!seen.heard.why.empty()) return {silence(bench, seen.heard)};
  auto findings = bench.speaks() ? judge_run_folder(path, seen.views) : Findings{};
  if (seen.heard.reply == kYes) add(findings, try_sharing(bench, seen.views));
  return findings;
}

}  // namespace

Findings run_folders(const Bench& bench) {
  const auto packed = places_of_rank_zero(bench);
  if (packed.empty()) return {fail("rank 0 was not heard", "look at rank 0: is it stopped?")};
  const auto places = base::unpack_texts(base::unpack_outcome(packed));
  hide_places(places, bench.known.paths);
  auto findings = look_at_data(bench, places.at(0));
  if (!bench.talk.is_broken()) add(findings, look_at_runs(bench, places.at(1)));
  return bench.speaks() ? findings : Findings{};
}

}  // namespace lockstep::doctor
