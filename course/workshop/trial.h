#pragma once
// An attempt that is real: builds the learner's file and runs it as the ranks of one machine.

#include <functional>
#include <string>

#include "course/workshop/judge.h"

namespace lockstep::workshop {

class Trial : public Attempt {
 public:
  /// `folder` is for what the program writes; `say` hears what begins: "building", "2 ranks". Where the
  /// program is built already it is taken as it is.
  Trial(std::string source, std::string program, std::string folder,
        std::function<void(const std::string&)> say, bool is_built = false);

  const std::string& text() const override { return text_; }
  const std::string& path() const override { return source_; }
  const std::string& folder() const override { return folder_; }
  Run run(const RunOptions& options) override;
  Run lockstep(const std::vector<std::string>& args, const RunOptions& options) override;
  Ending start(const std::vector<std::string>& argv, const std::vector<std::string>& settings) override;
  /// What the learner's own program printed when it ran last, rank by rank.
  const std::vector<std::string>& printed() const { return printed_; }

 private:
  Run run_ranks(const std::vector<std::string>& argv, const RunOptions& options,
                std::vector<std::string>* printed);
  launch::Environment with_temporaries(launch::Environment environment) const;
  void keep_logs(const Run& run) const;
  void tell(const RunOptions& options);

  std::string source_, program_, folder_, text_;
  std::function<void(const std::string&)> say_;
  std::string told_;
  std::vector<std::string> printed_;
  bool built_;
};

/// This process's environment without the words of any launcher or scheduler.
launch::Environment plain_environment();

}  // namespace lockstep::workshop
