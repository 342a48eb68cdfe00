#include "lockstep/comm/watch/roll_call.h"

#include <torch/csrc/distributed/c10d/debug.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <fstream>
#include <map>
#include <thread>
#include <utility>

#include "lockstep/base/format.h"
#include "lockstep/base/log.h"
#include "lockstep/base/run_for.h"
#include "lockstep/comm/watch/findings.h"
#include "lockstep/comm/watch/calls.h"
#include "lockstep/launch/process/leave.h"

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
const char* const kAgreedKey = "roll/agreed";
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

void wait_for(c10d::Store& store, const std::string& key) {
  try {
    store.wait({key});
  } catch (const std::exception&) {  // whoever is late finds no page, and errors name nobody
  }
}

// The lowest rank of a node makes the page; its name goes once all have it, so nothing is left in /dev/shm.
std::unique_ptr<RollPage> share_page(c10d::Store& store, const std::vector<Peer>& peers, int rank) {
  const auto mates = mates_of(peers, rank);
  const int world = static_cast<int>(peers.size());
  const std::string key = format("roll/page/{}", mates.front().rank);
  const bool first = mates.front().rank == rank;
  auto page = first ? create_page(store, key, world) : open_page(store.get_to_str(key), world);
  if (page) page->of(rank).present = true;
  // the last to open it tells the first
  if (store.add(key + "/open", 1) == static_cast<int64_t>(mates.size()))
    store.set(key + "/all", std::string());
  if (first) wait_for(store, key + "/all");
  if (page) page->unlink();
  return page;
}

// Rank 0's level is everybody's: the variable may not have travelled to each node.
bool agree_to_compare(c10d::Store& store, int rank) {
  const std::string key = "roll/compare";
  if (rank == 0) store.set(key, c10d::debug_level() == c10d::DebugLevel::Detail ? "yes" : "no");
  return store.get_to_str(key) == "yes";
}

double seconds_of(Milliseconds time) {
  return static_cast<double>(time.count()) / 1000;
}

// "all-reduce (collective 9) timed out after 8 s"
std::string in_words(const Collective& collective, bool timed_out) {
  const auto number = collective.number == 0 ? "" : format(" (collective {})", collective.number);
  const auto how = timed_out ? format("timed out after {} s", seconds_of(collective.timeout)) : "failed";
  return format("{}{} {}", collective.what, number, how);
}

// What is said where nobody is seen at fault.
std::string who_else(const Collective& collective, const std::string& cause, bool timed_out) {
  if (timed_out && collective.number != 0) return "nobody is seen at fault";
  return collective.is_message() ? collective.waits_for : cause;
}

enum class ProcessState { running, stopped, gone };

// A zombie counts as gone: its sockets and memory are.
ProcessState process_state(int pid) {
  if (::kill(pid, 0) != 0 && errno == ESRCH) return ProcessState::gone;
  std::ifstream file(format("/proc/{}/stat", pid));
  std::string line;
  if (!std::getline(file, line)) return ::kill(pid, 0) == 0 ? ProcessState::running : ProcessState::gone;
  // the state is the field after the command, which is in parentheses and may hold any character
  const size_t end = line.rfind(')');
  const char state = end == std::string::npos || end + 2 >= line.size() ? '?' : line[end + 2];
  if (state == 'Z' || state == 'X') return ProcessState::gone;
  return state == 'T' || state == 't' ? ProcessState::stopped : ProcessState::running;
}

// What a rank at fault has done, as "has died (its process is gone)"; `at` joins it to the number of its
// newest collective: ", at" + " collective 3".
struct RankFault {
  const char *of_one, *of_several, *at;
  Code code;
};
enum { kLeft, kDied, kStopped, kLate };
constexpr RankFault kRankFaults[] = {
    {"left the group", "left the group", " after", Code::rank_lost},
    {"has died (its process is gone)", "have died (their processes are gone)", ", at", Code::rank_lost},
    {"is stopped (SIGSTOP?)", "are stopped (SIGSTOP?)", ", at", Code::rank_late},
    {"did not come, it is", "did not come, they are", " at", Code::rank_late}};

// That a rank has begun last.
std::string newest_call(const RollPage& page, int rank) {
  return op_name(static_cast<c10d::OpType>(page.of(rank).what.load()));
}

// Of a rank where collective `number` is awaited (0: not counted); null where it is well. Without a timeout
// only a rank that has ended is at fault.
const RankFault* look_at(const RollPage& page, const Peer& peer, bool pid_counts, uint64_t number,
                         bool timed_out) {
  const auto& rank = page.of(peer.rank);
  const auto begun = rank.begun.load();
  const auto process = pid_counts ? process_state(peer.pid) : ProcessState::running;
  if (rank.left && (number == 0 || begun < number)) return &kRankFaults[kLeft];
  if (process == ProcessState::gone) return &kRankFaults[kDied];
  if (!timed_out) return nullptr;
  if (process == ProcessState::stopped) return &kRankFaults[kStopped];
  return begun < number ? &kRankFaults[kLate] : nullptr;
}

// "rank 1 (host n1, pid 24) has died (its process is gone)"
std::string in_words(const std::vector<Peer>& ranks, const RankFault& fault) {
  return format("{} {}", names_of(ranks), ranks.size() == 1 ? fault.of_one : fault.of_several);
}

const char* const kNoReport = "-";
constexpr Code kWaits = Code::failed;  // of a report that tells of nobody at fault, but of who waits for what

std::string report_key(int node) {
  return format("roll/report/{}", node);
}

// The first finding of the job stands.
Fault agree_in(c10d::Store& store, const Fault& found) {
  if (is_any(found)) return unpacked(store.compareSet(kAgreedKey, std::string(), packed(found)));
  return store.check({kAgreedKey}) ? unpacked(store.get_to_str(kAgreedKey)) : found;
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
Fault waiting_in_vain(Fault waits) {
  if (!is_any(waits)) return {};
  waits.what = "every rank came, and none has an answer: " + waits.what;
  waits.code = Code::calls_differ;
  return waits;
}

// The words of the other nodes, as far as they come in time; silent nodes are named.
Fault gather_reports(c10d::Store& store, const std::map<int, std::vector<Peer>>& others,
                     const std::string& cause, bool timed_out, Fault& waits) {
  const auto deadline = Clock::now() + kOtherNodes;
  Fault found;
  std::vector<Peer> silent;
  for (const auto& [node, ranks] : others) {
    while (!store.check({report_key(node)}) && Clock::now() < deadline) std::this_thread::sleep_for(kPoll);
    if (!store.check({report_key(node)})) {
      silent.insert(silent.end(), ranks.begin(), ranks.end());
      continue;
    }
    const auto report = unpacked(store.get_to_str(report_key(node)));  // kNoReport is empty
    add(report.code == kWaits ? waits : found, report);
  }
  if (!timed_out) silent = at_broken_end(silent, cause);  // the rest may not have noticed yet
  if (!is_any(found) && !silent.empty())
    return finding(silent, Code::rank_lost, "no word from " + names_of(silent), {.state = "gives no word"});
  return found;
}

// A store whose host is dead may never answer.
Fault bounded(std::function<Fault()> question, const Fault& otherwise) {
  try {
    return base::run_for(kStoreAnswers, std::move(question)).value_or(otherwise);
  } catch (const std::exception&) {
    return otherwise;
  }
}

}  // namespace

RollCall::RollCall(StorePtr store, std::vector<Peer> peers, int rank, std::shared_ptr<const RollCall> whole)
    : store_(std::move(store)),
      peers_(std::move(peers)),
      rank_(rank),
      whole_(std::move(whole)),
      page_(share_page(*store_, peers_, rank)),
      compares_calls_(agree_to_compare(*store_, rank)),
      last_words_(launch::before_the_end([this](const std::string& what) { return last_words(what); })) {}

RollCall::~RollCall() {
  last_words_.reset();
  leave();
}

void RollCall::require_alive() {
  if (!dead_.load(std::memory_order_relaxed)) return;
  const std::lock_guard<std::mutex> guard(mutex_);
  auto fault = death_;
  fault.what = "the process group is dead since: " + fault.what;
  fault.where = where();
  fault.hint = "end the job and start it again from its last checkpoint";
  throw Error(std::move(fault));
}

uint64_t RollCall::begin(c10d::OpType type) {
  require_alive();
  constexpr auto order = std::memory_order_relaxed;
  if (page_) page_->of(rank_).what.store(static_cast<uint32_t>(type), order);
  return counter().fetch_add(1, order) + 1;
}

void RollCall::at_death(std::function<void()> call) {
  const std::lock_guard<std::mutex> guard(mutex_);
  at_death_ = std::move(call);
}

void RollCall::take_back() {
  counter().fetch_sub(1, std::memory_order_relaxed);
}

void RollCall::leave() {
  silence_timer_.reset();
  if (page_) page_->of(rank_).left = true;
}

Fault RollCall::own_error(const std::string& what) const {
  const Peer& own = peers_[static_cast<size_t>(rank_)];
  return finding({own}, Code::rank_lost, format("{} met an error: {}", name_of(own), what),
                 {.number = begun(), .state = "met an error: " + what.substr(0, what.find('\n'))});
}

Fault RollCall::agreed_here() const {
  return page_ ? unpacked(page_->agreed()) : Fault{};
}

Fault RollCall::agree_here(const Fault& found) const {
  return page_ && is_any(found) ? unpacked(page_->agree_on(packed(found))) : found;
}

void RollCall::tell_end(const std::string& what) {
  const auto found = own_error(what);
  agree_here(found);
  if (mates_of(peers_, rank_).size() == peers_.size()) return;
  bounded([store = store_, found] { return agree_in(*store, found); }, {});
}

// The newest is named that this rank began: which of those under way does not end, libtorch counts in numbers
// of its own.
std::exception_ptr RollCall::judge_nccl(const std::string& what) {
  const Collective newest{.what = page_ ? newest_call(*page_, rank_) : "a collective over NCCL",
                          .number = begun(),
                          .timeout = nccl_timeout_};
  return diagnose(newest, what, what.find("timeout") != std::string::npos);
}

std::exception_ptr RollCall::judge_stall(const std::string& what, Milliseconds limit) {
  const Collective stalled{
      .what = what, .number = begun(), .timeout = limit, .waits_for = "no rank of this node has failed"};
  const bool lost = is_hopeless({.what = "", .number = std::numeric_limits<uint64_t>::max()});
  return diagnose(stalled, "", /*timed_out=*/!lost);
}

// Each group over NCCL has a watchdog, which names it: the others have nothing to say.
std::exception_ptr RollCall::last_words(const std::string& what) {
  if (nccl_timeout_.count() == 0 || what.find("watchdog thread terminated") == std::string::npos)
    return tell_end(what), nullptr;
  const auto names = [&what](const std::string& name) {
    return what.find("PG GUID " + name + " ") != std::string::npos ||
           what.find("PG GUID " + name + "(") != std::string::npos;
  };
  return names(nccl_name_) || what.find("PG GUID ") == std::string::npos ? judge_nccl(what) : nullptr;
}

bool RollCall::is_lost(int rank, uint64_t number) const {
  if (!page_ || !page_->of(rank).present) return false;
  const Peer& peer = peers_[static_cast<size_t>(rank)];
  return look_at(*page_, peer, pid_counts(peer), number, false) != nullptr;
}

bool RollCall::is_hopeless(const Collective& collective) const {
  if (!page_) return false;
  return std::any_of(peers_.begin(), peers_.end(), [&](const Peer& peer) {
    if (peer.rank == rank_ || !page_->of(peer.rank).present) return false;
    if (collective.peer >= 0 && peer.rank != collective.peer) return false;
    if (page_->of(peer.rank).left) return page_->of(peer.rank).begun.load() < collective.number;
    return pid_counts(peer) && process_state(peer.pid) == ProcessState::gone;
  });
}

bool RollCall::pid_counts(const Peer& peer) const {
  return peer.pid_space == peers_[static_cast<size_t>(rank_)].pid_space;
}

void RollCall::watch(PeerConnections connections, OnSilence on_silence) {
  if (connections.empty()) return;
  const auto period = connections.period();
  silence_timer_ = std::make_unique<base::Timer>(period, [this, on_silence, all = std::move(connections)] {
    const auto silent = all.silent();
    if (silent.empty()) return true;
    lose(silent, all.silence());
    if (on_silence == OnSilence::cut_and_say) log::error(silence_.what + "\n  to do: " + kLookAtNode);
    if (on_silence != OnSilence::tell) all.cut(silent);
    return false;
  });
}

void RollCall::lose(const std::vector<std::string>& addresses, Milliseconds silence) {
  std::vector<Peer> lost;
  for (const auto& peer : peers_)
    if (std::find(addresses.begin(), addresses.end(), peer.address) != addresses.end()) lost.push_back(peer);
  const std::string who = lost.empty() ? "the host at " + addresses.front() : "the node of " + names_of(lost);
  const auto state =
      format("has not answered for {} s: it is gone, or the network to it", seconds_of(silence));
  silence_ = finding(lost, Code::rank_lost, who + " " + state, {.state = state});
  heard_nothing_.store(true, std::memory_order_release);
}

std::string RollCall::where() const {
  const Peer& own = peers_[static_cast<size_t>(rank_)];
  return format("rank {} on host {}", own.rank_in_job(), own.host);
}

// The first that is seen here stands: whoever leaves because of it has not died.
Fault RollCall::look_for_dead() const {
  if (!page_) return {};
  if (auto agreed = agreed_here(); is_any(agreed)) return agreed;
  std::vector<Peer> dead;
  for (const auto& peer : peers_) {
    if (!page_->of(peer.rank).present || page_->of(peer.rank).left || !pid_counts(peer)) continue;
    if (process_state(peer.pid) == ProcessState::gone) dead.push_back(peer);
  }
  if (dead.empty()) return {};
  const auto& died = kRankFaults[kDied];
  return agree_here(finding(dead, died.code, in_words(dead, died), {.state = died.of_one}));
}

Fault RollCall::look_here(const Collective& collective, bool timed_out) const {
  if (auto dead = whole_ ? whole_->look_for_dead() : Fault{}; is_any(dead)) return dead;
  if (!page_) return {};
  std::map<std::pair<uint64_t, const RankFault*>, std::vector<Peer>>
      at_fault;  // the same words are said once
  for (const auto& peer : peers_) {
    if (peer.rank == rank_ || !page_->of(peer.rank).present) continue;
    if (collective.peer >= 0 && peer.rank != collective.peer) continue;
    const auto* fault = look_at(*page_, peer, pid_counts(peer), collective.number, timed_out);
    if (fault) at_fault[{page_->of(peer.rank).begun.load(), fault}].push_back(peer);
  }
  Fault found;
  for (const auto& [kind, ranks] : at_fault) {
    const auto& [begun, fault] = kind;
    const auto at = format("{} collective {}", fault->at, begun);
    add(found, finding(ranks, fault->code, in_words(ranks, *fault) + at,
                       {.number = begun, .state = fault->of_one + at}));
  }
  return found;
}

Fault RollCall::waits_here() const {
  Fault waits;
  if (!page_) return waits;
  std::map<std::pair<std::string, uint64_t>, std::vector<Peer>> waiting;
  for (const auto& peer : peers_) {
    if (!page_->of(peer.rank).present) continue;
    waiting[{newest_call(*page_, peer.rank), page_->of(peer.rank).begun.load()}].push_back(peer);
  }
  for (const auto& [call, ranks] : waiting) {
    const auto& [what, number] = call;
    add(waits, finding(ranks, kWaits, format("{} in {} (collective {})", names_of(ranks), what, number),
                       {.call = what, .number = number}));
  }
  waits.ranks.clear();  // nobody's fault yet
  return waits;
}

Fault RollCall::ask_elsewhere(const std::string& cause, bool timed_out, const Fault& found_here) const {
  std::map<int, std::vector<Peer>> others;
  const Peer& own = peers_[static_cast<size_t>(rank_)];
  for (const auto& peer : peers_) {
    if (!same_node(peer, own)) others[peer.node].push_back(peer);
  }
  const Fault waits_here = timed_out && !is_any(found_here) ? this->waits_here() : Fault{};
  if (others.empty()) return is_any(found_here) ? found_here : waiting_in_vain(waits_here);
  const auto question = [store = store_, others, cause, timed_out, found_here, waits_here, node = own.node] {
    if (auto agreed = agree_in(*store, {}); is_any(agreed)) return agreed;
    const auto& report = is_any(found_here) ? found_here : waits_here;
    store->set(report_key(node), is_any(report) ? packed(report) : kNoReport);
    if (is_any(found_here) && !timed_out) return agree_in(*store, found_here);
    auto all = found_here;
    auto waits = waits_here;
    add(all, gather_reports(*store, others, cause, timed_out, waits));
    return agree_in(*store, is_any(all) ? all : waiting_in_vain(waits));
  };
  const Fault otherwise =
      finding({peers_[0]}, Code::rank_lost,
              format("the job's store, which {} holds, does not answer", name_of(peers_[0])),
              {.state = "holds the job's store, which does not answer"});
  return bounded(question, is_any(found_here) || own.rank == 0 ? found_here : otherwise);
}

Fault RollCall::find_fault(const Collective& collective, const std::string& cause, bool timed_out) const {
  if (auto agreed = agreed_here(); is_any(agreed)) return agreed;
  if (heard_nothing()) return agree_here(silence_);
  auto found = look_here(collective, timed_out);
  const auto deadline = Clock::now() + kDeathNotice;
  while (!is_any(found) && !timed_out && page_ && Clock::now() < deadline) {
    std::this_thread::sleep_for(kPoll);
    if (auto agreed = agreed_here(); is_any(agreed)) return agreed;
    found = look_here(collective, timed_out);
  }
  // a message that is late says nothing of ranks that have no part in it
  if (!collective.is_message() || !timed_out) found = ask_elsewhere(cause, timed_out, found);
  // a mate that sees this rank leave is to say why it left
  if (!is_any(found) && !timed_out) found = own_error(cause);
  return agree_here(found);
}

std::exception_ptr RollCall::diagnose(const Collective& collective, const std::string& cause,
                                      bool timed_out) {
  const std::lock_guard<std::mutex> guard(mutex_);
  if (!dead_) {
    death_ = find_fault(collective, cause, timed_out);
    const bool is_own = death_.ranks == std::vector{peers_[static_cast<size_t>(rank_)].rank_in_job()};
    if (!is_any(death_)) death_.code = Code::rank_late;
    if (is_own) death_.code = Code::failed;
    death_.met_in = {collective.what, collective.number, timed_out ? seconds_of(collective.timeout) : 0};
    const auto who = is_any(death_) ? death_.what : who_else(collective, cause, timed_out);
    death_.what = in_words(collective, timed_out) + ": " + who;
    dead_ = true;
  }
  die();  // also where it was end_at() that made the group dead: who still waits meets an error now
  const bool says_cause = cause.empty() || death_.what.find(cause) != std::string::npos;
  auto fault = death_;
  fault.where = where() + (says_cause ? "" : "; the backend said: " + cause);
  fault.hint = heard_nothing() ? kLookAtNode : kLookAtRank;
  return std::make_exception_ptr(Error(std::move(fault)));
}

// Under the lock.
void RollCall::die() {
  if (const auto call = std::exchange(at_death_, {})) call();
}

std::exception_ptr RollCall::end_at(uint64_t collective, Difference difference, const std::string& found) {
  std::string own = page_ ? newest_call(*page_, rank_) : "a collective";
  for (auto& seen : difference.calls) {
    if (seen.rank == rank_) own = seen.call;  // the page has the one begun last, which may be another
    seen.rank = peers_[static_cast<size_t>(seen.rank)].rank_in_job();
    seen.number = collective;
  }
  auto fault = agree_here({.code = Code::calls_differ,
                           .what = format("collective {}: {}", collective, difference.words),
                           .seen = std::move(difference.calls)});
  if (fault.code != Code::calls_differ) fault = {.code = Code::calls_differ, .what = fault.what};
  fault.met_in = {.call = own, .number = collective};
  {
    const std::lock_guard<std::mutex> guard(mutex_);
    death_ = fault;
    dead_ = true;
  }
  fault.where = "the process group, " + found;
  fault.hint = "look for a branch of the program that not every rank takes, or takes in another order";
  return std::make_exception_ptr(Error(std::move(fault)));
}

std::exception_ptr RollCall::end_all_at(uint64_t collective, Difference difference) {
  auto error = end_at(collective, std::move(difference), "compared before it ran");
  const std::lock_guard<std::mutex> guard(mutex_);
  bounded([store = store_, found = death_] { return agree_in(*store, found); }, {});
  die();
  return error;
}

}  // namespace lockstep::comm
