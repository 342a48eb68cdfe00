#pragma once
// How a collective of InlineBackend runs: in its call, or behind it; and what becomes of it.

#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/comm/node/inline_backend.h"
#include "lockstep/comm/watch/finished_work.h"
#include "lockstep/comm/watch/op_names.h"

namespace lockstep::comm {

// What a call is, apart from its tensors.
struct InlineBackend::Asked {
  c10d::OpType type;
  std::chrono::milliseconds timeout;
  int reduction = -1;
  int64_t root = -1;
};

struct InlineBackend::Beginning {
  c10d::OpType type;
  uint64_t number;
  std::chrono::milliseconds limit;
  Call call;  // where calls are compared
  CallWord word;

  /// As an error speaks of it.
  Collective collective() const { return {op_name(type), number, limit}; }
};

template <class Body>
std::exception_ptr InlineBackend::carry_out(const Beginning& beginning, const Body& body) {
  try {
    roll_->require_alive();  // it may have died while this one waited for its turn
    Patience patience(*roll_, beginning.number, beginning.limit, transport_->crowded());
    if (roll_->compares_calls()) compare_in(patience, beginning.call, beginning.number);
    transport_->name_call(beginning.word);
    body(patience);
    return nullptr;
  } catch (const OutOfPatience& reason) {
    return roll_->judge(beginning.collective(), reason.cause, reason.timed_out);
  } catch (const UnlikeCalls& unlike) {
    return roll_->end_at(beginning.number, difference_to(unlike, getRank(), beginning.word),
                         "compared before it ran");
  } catch (const Error&) {
    return std::current_exception();  // the roll's own
  } catch (const std::exception& error) {
    return roll_->judge(beginning.collective(), error.what(), false);  // others are in the middle of it
  }
}

// A call that would wait for another rank goes on, as with any backend of c10d: that rank may wait for what
// this one does next. What comes after it keeps its turn.
template <class Body>
InlineBackend::WorkPtr InlineBackend::run(const Asked& asked, const Tensors& tensors, Tensors results,
                                          Body body) {
  const std::lock_guard<std::recursive_mutex> guard(mutex_);
  const auto limit = asked.timeout == c10d::kUnsetTimeout ? options_->timeout : asked.timeout;
  number_ = roll_->begin(asked.type);
  Beginning beginning{asked.type, number_, limit, {}, word_for(asked, tensors)};
  if (roll_->compares_calls()) beginning.call = call_of(asked.type, tensors, how_of(asked));
  if (runs_ == Execution::in_the_call || is_soon_done()) {
    const auto error = carry_out(beginning, body);
    return c10::make_intrusive<FinishedWork>(getRank(), asked.type, number_, std::move(results), error);
  }
  auto work = c10::make_intrusive<QueuedWork>(getRank(), asked.type, number_, std::move(results));
  queue_.add(work, [this, beginning, body = std::move(body)] { return carry_out(beginning, body); });
  return work;
}

}  // namespace lockstep::comm
