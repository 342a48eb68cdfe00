#pragma once
// Rank 0 hears every rank's text and answers, before any group is opened.

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "lockstep/launch/process/runtime.h"

namespace lockstep::comm {

/// What rank 0 makes of all texts, which it gets in rank order.
using AnswerMaker = std::function<std::string(const std::vector<std::string>& texts)>;

/// Rank 0's answer, on every rank, once the ranks have met. Throws Error where one does not come in time.
std::string ask_rank_zero(const launch::Runtime& runtime, const std::string& text, const AnswerMaker& answer,
                          std::chrono::milliseconds timeout);

}  // namespace lockstep::comm
