#include "trainer/step/sample_source.h"

#include "lockstep/base/format.h"
#include "trainer/step/acting.h"

namespace lockstep::train {
namespace {

class DataSource : public SampleSource {
 public:
  explicit DataSource(const Setup& setup) : setup_(setup) {}

  int64_t samples() const override { return setup_.data.train->size(); }
  Feed feed(const Settings& settings) const override {
    return Feed(settings, setup_.data.train, setup_.mesh->data());
  }
  bool is_shared() const override { return true; }
  std::string description() const override {
    const auto& data = setup_.data;
    const auto wanted = data.regression ? "one number each" : format("{} classes", data.class_names.size());
    return format("{} training samples of {}, {} to evaluate on, {}", data.train->size(),
                  shape_in_words(data.input_shape), data.eval->size(), wanted);
  }

 private:
  const Setup& setup_;  // its data may move to the device later
};

}  // namespace

std::string shape_in_words(const std::vector<int64_t>& shape) {
  std::string text;
  for (const auto size : shape) text += (text.empty() ? "" : " x ") + std::to_string(size);
  return text;
}

std::unique_ptr<SampleSource> make_sample_source(const Setup& setup) {
  if (auto actor = actor_of(setup)) return make_acting(setup, std::move(actor));
  return std::make_unique<DataSource>(setup);
}

}  // namespace lockstep::train
