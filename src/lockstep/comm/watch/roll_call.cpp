#include "lockstep/comm/watch/roll_call.h"

#include <torch/csrc/distributed/c10d/debug.h>

#include <algorithm>
#include <chrono>
#include <future>
#include <map>
#include <thread>

#include "lockstep/base/format.h"
#include "lockstep/base/log.h"
#include "lockstep/comm/watch/op_names.h"
#include "lockstep/comm/watch/process_state.h"
#include "lockstep/launch/process/uncaught.h"

namespace lockstep::comm {
namespace {

using Clock = std::chrono::steady_clock;
using Milliseconds = std::chrono::milliseconds;
using StorePtr = c10::intrusive_ptr<c10d::Store>;

// a socket closes a moment before its process is a zombie, and /proc says so
constexpr Milliseconds kDeathNotice{500};
// other nodes run into the same timeout, but not at the same moment
constexpr Milliseconds kOtherNodes{1200};
constexpr Milliseconds kStoreAnswers{1800};
constexpr Milliseconds kPoll{5};
const char* const kVerdictKey = "roll/verdict";
const char* const kLookAtRank =
    "look in that rank's log; start the job again from its last checkpoint; "
    "raise launch.timeout if a rank is only slow";
const char* const kLookAtNode =
    "look at that node and its network; start the job again from its last checkpoint; "
    "set LOCKSTEP_SILENCE to more seconds where a network is known to pause";

bool same_node(const Peer& a, const Peer& b) {
  return a.node == b.node && a.host == b.host;
}

std::vector<Peer> mates_of(const std::vector<Peer>& peers, int rank) {
  std::vector<Peer> mates;
  for (const auto& peer : peers) {
    if (same_node(peer, peers[static_cast<size_t>(rank)])) mates.push_back(peer);
  }
  return mates;
}

std::unique_ptr<RollPage> create_page(c10d::Store& store, const std::string& key, int world) {
  try {
    auto page = std::make_unique<RollPage>(base::SharedMemory::create(RollPage::bytes_for(world)), world);
    store.set(key, page->name());
    return page;
  } catch (const Error& error) {
    log::warning(format("errors will not name the ranks at fault: {}", error.what()));
    store.set(key, std::string("none"));
    return nullptr;
  }
}

std::unique_ptr<RollPage> open_page(const std::string& name, int world) {
  auto memory = base::SharedMemory::open(name);
  return memory ? std::make_unique<RollPage>(std::move(*memory), world) : nullptr;
}

// The lowest rank of a node makes the page; its name goes once all have it, so nothing is left in /dev/shm.
std::unique_ptr<RollPage> share_page(c10d::Store& store, const std::vector<Peer>& peers, int rank) {
  const auto mates = mates_of(peers, rank);
  const int world = static_cast<int>(peers.size());
  const std::string key = format("roll/page/{}", mates.front().rank);
  const bool first = mates.front().rank == rank;
  auto page = first ? create_page(store, key, world) : open_page(store.get_to_str(key), world);
  if (page) page->enter(rank);
  store.add(key + "/open", 1);
  const auto deadline = Clock::now() + store.getTimeout();
  while (first && store.add(key + "/open", 0) < static_cast<int64_t>(mates.size()) &&
         Clock::now() < deadline) {
    std::this_thread::sleep_for(kPoll);
  }
  if (page) page->unlink();
  return page;
}

// Rank 0's level is everybody's: the variable may not have travelled to each node.
bool agree_to_compare(c10d::Store& store, int rank) {
  const std::string key = "roll/compare";
  if (rank == 0) store.set(key, c10d::debug_level() == c10d::DebugLevel::Detail ? "yes" : "no");
  return store.get_to_str(key) == "yes";
}

// What is wrong with a rank, or nothing. Without a timeout only an ended rank is at fault.
struct Sighting {
  bool ended = false;
  std::string text;
};

Sighting look_at(const RollPage& page, const Peer& peer, bool pid_counts, uint64_t number, bool timed_out) {
  const uint64_t begun = page.begun(peer.rank);
  const ProcessState state = pid_counts ? process_state(peer.pid) : ProcessState::running;
  if (page.left(peer.rank) && (number == 0 || begun < number))
    return {true, format("left the group after collective {}", begun)};
  if (state == ProcessState::gone)
    return {true, format("has died (its process is gone), at collective {}", begun)};
  if (!timed_out) return {};
  if (state == ProcessState::stopped)
    return {false, format("is stopped (SIGSTOP?), at collective {}", begun)};
  if (begun < number) return {false, format("did not come, it is at collective {}", begun)};
  return {};
}

std::string report_key(int node) {
  return format("roll/report/{}", node);
}

// The first verdict of the job stands.
std::string settle_in(c10d::Store& store, const std::string& verdict) {
  if (verdict.empty()) return store.check({kVerdictKey}) ? store.get_to_str(kVerdictKey) : verdict;
  return store.compareSet(kVerdictKey, std::string(), verdict);
}

// gloo says at which address a connection broke: the ranks there.
std::vector<Peer> at_broken_end(const std::vector<Peer>& peers, const std::string& cause) {
  std::vector<Peer> there;
  for (const auto& peer : peers) {
    const bool named = cause.find("[" + peer.address + "]") != std::string::npos;
    if (!peer.address.empty() && named) there.push_back(peer);
  }
  return there;
}

// Where nobody is seen at fault, what each rank waits for may still tell.
constexpr std::string_view kWaiting = "waiting: ";

void append(std::string& text, const std::string& more) {
  if (!more.empty()) text += (text.empty() ? "" : "; ") + more;
}

std::string waiting_in_vain(const std::string& waits) {
  return waits.empty() ? "" : "every rank came, and none has an answer: " + waits;
}

// The words of the other nodes, as far as they come in time; silent nodes are named.
std::string gather_reports(c10d::Store& store, const std::map<int, std::vector<Peer>>& others,
                           const std::string& cause, bool timed_out, std::string& waits) {
  const auto deadline = Clock::now() + kOtherNodes;
  std::string text;
  std::vector<Peer> silent;
  for (const auto& [node, ranks] : others) {
    while (!store.check({report_key(node)}) && Clock::now() < deadline) std::this_thread::sleep_for(kPoll);
    if (!store.check({report_key(node)})) {
      silent.insert(silent.end(), ranks.begin(), ranks.end());
      continue;
    }
    const std::string report = store.get_to_str(report_key(node));
    if (report == "-") continue;
    const bool waiting = report.starts_with(kWaiting);
    append(waiting ? waits : text, waiting ? report.substr(kWaiting.size()) : report);
  }
  if (!timed_out) silent = at_broken_end(silent, cause);  // the rest may not have noticed yet
  if (text.empty() && !silent.empty()) text = "no word from " + names_of(silent);
  return text;
}

// A store whose host is dead may never answer: the question is asked by a thread that can be left behind.
std::string bounded(std::function<std::string()> question, const std::string& otherwise) {
  auto answer = std::make_shared<std::promise<std::string>>();
  auto future = answer->get_future();
  std::thread([question = std::move(question), answer, otherwise] {
    try {
      answer->set_value(question());
    } catch (const std::exception&) {
      answer->set_value(otherwise);
    }
  }).detach();
  return future.wait_for(kStoreAnswers) == std::future_status::ready ? future.get() : otherwise;
}

}  // namespace

RollCall::RollCall(StorePtr store, std::vector<Peer> peers, int rank, std::shared_ptr<const RollCall> whole)
    : store_(std::move(store)),
      peers_(std::move(peers)),
      rank_(rank),
      whole_(std::move(whole)),
      page_(share_page(*store_, peers_, rank)),
      compares_calls_(agree_to_compare(*store_, rank)),
      last_words_(launch::before_the_end([this](const std::string& what) { tell_end(what); })) {}

RollCall::~RollCall() {
  last_words_.reset();
  leave();
}

void RollCall::require_alive() {
  if (!dead_.load(std::memory_order_relaxed)) return;
  const std::lock_guard<std::mutex> guard(mutex_);
  throw Error("the process group is dead since: " + cause_of_death_, where(),
              "end the job and start it again from its last checkpoint");
}

uint64_t RollCall::begin(c10d::OpType type) {
  require_alive();
  return page_ ? page_->begin(rank_, static_cast<uint32_t>(type))
               : own_count_.fetch_add(1, std::memory_order_relaxed) + 1;
}

void RollCall::at_death(std::function<void()> call) {
  const std::lock_guard<std::mutex> guard(mutex_);
  at_death_ = std::move(call);
}

void RollCall::take_back() {
  page_ ? page_->take_back(rank_) : void(own_count_.fetch_sub(1));
}

void RollCall::leave() {
  watch_.reset();
  if (page_) page_->leave(rank_);
}

std::string RollCall::own_error(const std::string& what) const {
  return format("{} met an error: {}", name_of(peers_[static_cast<size_t>(rank_)]), what);
}

void RollCall::tell_end(const std::string& what) {
  const std::string words = own_error(what);
  if (page_) page_->settle(words);
  if (mates_of(peers_, rank_).size() == peers_.size()) return;
  bounded([store = store_, words] { return settle_in(*store, words); }, "");
}

bool RollCall::is_lost(int rank, uint64_t number) const {
  if (!page_ || !page_->present(rank)) return false;
  const Peer& peer = peers_[static_cast<size_t>(rank)];
  return look_at(*page_, peer, pid_counts(peer), number, false).ended;
}

bool RollCall::is_hopeless(const Collective& collective) const {
  if (!page_) return false;
  return std::any_of(peers_.begin(), peers_.end(), [&](const Peer& peer) {
    if (peer.rank == rank_ || !page_->present(peer.rank)) return false;
    if (collective.peer >= 0 && peer.rank != collective.peer) return false;
    if (page_->left(peer.rank)) return page_->begun(peer.rank) < collective.number;
    return pid_counts(peer) && process_state(peer.pid) == ProcessState::gone;
  });
}

bool RollCall::pid_counts(const Peer& peer) const {
  return peer.pid_space == peers_[static_cast<size_t>(rank_)].pid_space;
}

void RollCall::watch(Lines lines, OnSilence on_silence) {
  if (lines.empty()) return;
  const auto report = [this, on_silence](const Lines& all, const std::vector<std::string>& silent) {
    lose(silent, all.silence());
    if (on_silence == OnSilence::cut_and_say) log::error(silence_ + "\n  to do: " + kLookAtNode);
    if (on_silence != OnSilence::tell) all.cut(silent);
  };
  watch_ = std::make_unique<LineWatch>(std::move(lines), report);
}

void RollCall::lose(const std::vector<std::string>& addresses, Milliseconds silence) {
  std::vector<Peer> lost;
  for (const auto& peer : peers_)
    if (std::find(addresses.begin(), addresses.end(), peer.address) != addresses.end()) lost.push_back(peer);
  const std::string who = lost.empty() ? "the host at " + addresses.front() : "the node of " + names_of(lost);
  silence_ =
      format("{} has not answered for {} s: it is gone, or the network to it", who, silence.count() / 1000.0);
  heard_nothing_.store(true, std::memory_order_release);
}

std::string RollCall::where() const {
  const Peer& own = peers_[static_cast<size_t>(rank_)];
  return format("rank {} on host {}", own.in_job < 0 ? rank_ : own.in_job, own.host);
}

// The first that is seen here stands: whoever leaves because of it has not died.
std::string RollCall::look_for_dead() const {
  if (!page_) return "";
  if (!page_->verdict().empty()) return page_->verdict();
  std::vector<Peer> dead;
  for (const auto& peer : peers_) {
    if (!page_->present(peer.rank) || page_->left(peer.rank) || !pid_counts(peer)) continue;
    if (process_state(peer.pid) == ProcessState::gone) dead.push_back(peer);
  }
  return dead.empty() ? "" : page_->settle(names_of(dead) + " has died (its process is gone)");
}

std::string RollCall::look_here(const Collective& collective, bool timed_out) const {
  if (const auto dead = whole_ ? whole_->look_for_dead() : ""; !dead.empty()) return dead;
  if (!page_) return "";
  std::map<std::string, std::vector<Peer>> at_fault;  // the same words are said once
  for (const auto& peer : peers_) {
    if (peer.rank == rank_ || !page_->present(peer.rank)) continue;
    if (collective.peer >= 0 && peer.rank != collective.peer) continue;
    const Sighting sighting = look_at(*page_, peer, pid_counts(peer), collective.number, timed_out);
    if (!sighting.text.empty()) at_fault[sighting.text].push_back(peer);
  }
  std::string text;
  for (const auto& [words, ranks] : at_fault)
    text += (text.empty() ? "" : "; ") + names_of(ranks) + " " + words;
  return text;
}

std::string RollCall::waits_here() const {
  if (!page_) return "";
  std::map<std::string, std::vector<Peer>> waiting;
  for (const auto& peer : peers_) {
    if (!page_->present(peer.rank)) continue;
    const auto what = op_name(static_cast<c10d::OpType>(page_->what(peer.rank)));
    waiting[format("in {} (collective {})", what, page_->begun(peer.rank))].push_back(peer);
  }
  std::string text;
  for (const auto& [words, ranks] : waiting) append(text, names_of(ranks) + " " + words);
  return text;
}

std::string RollCall::ask_elsewhere(const std::string& cause, bool timed_out,
                                    const std::string& found_here) const {
  std::map<int, std::vector<Peer>> others;
  const Peer& own = peers_[static_cast<size_t>(rank_)];
  for (const auto& peer : peers_) {
    if (!same_node(peer, own)) others[peer.node].push_back(peer);
  }
  const std::string waits_here = timed_out && found_here.empty() ? this->waits_here() : "";
  if (others.empty()) return found_here.empty() ? waiting_in_vain(waits_here) : found_here;
  const auto question = [store = store_, others, cause, timed_out, found_here, waits_here, node = own.node] {
    std::string settled = settle_in(*store, "");
    if (!settled.empty()) return settled;
    const std::string nothing = waits_here.empty() ? "-" : std::string(kWaiting) + waits_here;
    store->set(report_key(node), found_here.empty() ? nothing : found_here);
    if (!found_here.empty() && !timed_out) return settle_in(*store, found_here);
    std::string all = found_here, waits = waits_here;
    append(all, gather_reports(*store, others, cause, timed_out, waits));
    return settle_in(*store, all.empty() ? waiting_in_vain(waits) : all);
  };
  const std::string otherwise =
      format("the job's store, which {} holds, does not answer", name_of(peers_[0]));
  return bounded(question, found_here.empty() && own.rank != 0 ? otherwise : found_here);
}

std::string RollCall::verdict_on(const Collective& collective, const std::string& cause,
                                 bool timed_out) const {
  if (page_ && !page_->verdict().empty()) return page_->verdict();
  if (heard_nothing()) return page_ ? page_->settle(silence_) : silence_;
  std::string found = look_here(collective, timed_out);
  const auto deadline = Clock::now() + kDeathNotice;
  while (found.empty() && !timed_out && page_ && Clock::now() < deadline) {
    std::this_thread::sleep_for(kPoll);
    if (!page_->verdict().empty()) return page_->verdict();
    found = look_here(collective, timed_out);
  }
  // a message that is late says nothing of ranks that have no part in it
  if (!collective.is_message() || !timed_out) found = ask_elsewhere(cause, timed_out, found);
  // a mate that sees this rank leave is to say why it left
  if (found.empty() && !timed_out) found = own_error(cause);
  return page_ && !found.empty() ? page_->settle(found) : found;
}

std::exception_ptr RollCall::judge(const Collective& collective, const std::string& cause, bool timed_out) {
  const std::lock_guard<std::mutex> guard(mutex_);
  const std::string how =
      timed_out ? format("timed out after {} s", collective.timeout.count() / 1000.0) : "failed";
  if (!dead_) {
    std::string who = verdict_on(collective, cause, timed_out);
    if (who.empty() && timed_out && collective.number != 0) who = "nobody is seen at fault";
    if (who.empty()) who = collective.is_message() ? collective.waits_for : cause;
    const std::string which = collective.number == 0 ? "" : format(" (collective {})", collective.number);
    cause_of_death_ = format("{}{} {}: {}", collective.what, which, how, who);
    dead_ = true;
    if (at_death_) at_death_();
  }
  const bool told = cause.empty() || cause_of_death_.find(cause) != std::string::npos;
  const std::string place = where() + (told ? "" : "; the backend said: " + cause);
  return std::make_exception_ptr(Error(cause_of_death_, place, heard_nothing() ? kLookAtNode : kLookAtRank));
}

void RollCall::end_at(uint64_t collective, const std::string& difference) {
  const std::string what = format("collective {}: {}", collective, difference);
  {
    const std::lock_guard<std::mutex> guard(mutex_);
    cause_of_death_ = what;
    dead_ = true;
  }
  throw Error(what, "the process group, compared because of TORCH_DISTRIBUTED_DEBUG=DETAIL",
              "look for a branch of the program that not every rank takes, or takes in another order");
}

}  // namespace lockstep::comm
