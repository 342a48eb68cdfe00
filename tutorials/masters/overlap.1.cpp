//@ title      Assign gradients to buckets, as DDP does
//@ hint       Backward reaches the last layer first. Which parameter's gradient is ready first?
//@ hint       Go from the last parameter to the first. Put each into the open bucket, and count its bytes.
//@ hint       After each parameter, close the bucket if it has reached its cap. The first bucket has its own cap.
//@ unsolved   each gradient has its own all-reduce
#include <lockstep/workshop.h>

// DDP sends gradients in buckets while backward is still running. Its rules:
//
//   1. Gradients arrive in reverse order: the last parameter's first.
//   2. A gradient is never split: it goes into the open bucket. A float has 4 bytes.
//   3. A bucket that has reached its cap is closed; the next gradient opens a new one.
//   4. The first bucket has a smaller cap, so that communication starts early.
//
// Input: the number of elements of each parameter, in the model's order.
// Output: the indices of the parameters, bucket by bucket.
//
// Elements {3, 300, 300, 9} with a first cap of 40 bytes and a cap of 1210 give {{3, 2}, {1, 0}}: 36 bytes are below
// 40, but 36 + 1200 are not; 1200 bytes are below 1210, but 1200 + 12 are not.

using Bucket = std::vector<int64_t>;

std::vector<Bucket> pack(const std::vector<int64_t>& elements, int64_t first_cap, int64_t cap) {
  //@ todo
  // TODO: apply the four rules. At present each gradient has its own bucket.
  std::vector<Bucket> buckets;
  for (int64_t i = 0; i < std::ssize(elements); ++i) buckets.push_back({i});
  (void)first_cap, (void)cap;
  return buckets;
  //@ solution
  std::vector<Bucket> buckets(1);
  int64_t bytes = 0;
  for (int64_t i = std::ssize(elements) - 1; i >= 0; --i) {
    buckets.back().push_back(i);
    bytes += 4 * elements[i];
    if (bytes >= (buckets.size() == 1 ? first_cap : cap)) {
      buckets.emplace_back();
      bytes = 0;
    }
  }
  if (buckets.back().empty()) buckets.pop_back();
  return buckets;
  //@ wrong exceeded
  std::vector<Bucket> buckets(1);
  int64_t bytes = 0;
  for (int64_t i = std::ssize(elements) - 1; i >= 0; --i) {
    buckets.back().push_back(i);
    bytes += 4 * elements[i];
    if (bytes > (buckets.size() == 1 ? first_cap : cap)) {
      buckets.emplace_back();
      bytes = 0;
    }
  }
  if (buckets.back().empty()) buckets.pop_back();
  return buckets;
  //@ wrong forward
  std::vector<Bucket> buckets(1);
  int64_t bytes = 0;
  for (int64_t i = 0; i < std::ssize(elements); ++i) {
    buckets.back().push_back(i);
    bytes += 4 * elements[i];
    if (bytes >= (buckets.size() == 1 ? first_cap : cap)) {
      buckets.emplace_back();
      bytes = 0;
    }
  }
  if (buckets.back().empty()) buckets.pop_back();
  return buckets;
  //@ wrong elements
  std::vector<Bucket> buckets(1);
  int64_t bytes = 0;
  for (int64_t i = std::ssize(elements) - 1; i >= 0; --i) {
    buckets.back().push_back(i);
    bytes += elements[i];
    if (bytes >= (buckets.size() == 1 ? first_cap : cap)) {
      buckets.emplace_back();
      bytes = 0;
    }
  }
  if (buckets.back().empty()) buckets.pop_back();
  return buckets;
  //@ wrong one_cap
  std::vector<Bucket> buckets(1);
  int64_t bytes = 0;
  for (int64_t i = std::ssize(elements) - 1; i >= 0; --i) {
    buckets.back().push_back(i);
    bytes += 4 * elements[i];
    if (bytes >= cap) {
      buckets.emplace_back();
      bytes = 0;
    }
  }
  if (buckets.back().empty()) buckets.pop_back();
  (void)first_cap;
  return buckets;
  //@ wrong before
  std::vector<Bucket> buckets(1);
  int64_t bytes = 0;
  for (int64_t i = std::ssize(elements) - 1; i >= 0; --i) {
    const auto limit = buckets.size() == 1 ? first_cap : cap;
    if (bytes > 0 && bytes + 4 * elements[i] > limit) {
      buckets.emplace_back();
      bytes = 0;
    }
    buckets.back().push_back(i);
    bytes += 4 * elements[i];
  }
  return buckets;
  //@ wrong total
  std::vector<Bucket> buckets(1);
  int64_t bytes = 0;
  for (int64_t i = std::ssize(elements) - 1; i >= 0; --i) {
    buckets.back().push_back(i);
    bytes += 4 * elements[i];
    if (bytes >= (buckets.size() == 1 ? first_cap : cap)) buckets.emplace_back();
  }
  if (buckets.back().empty()) buckets.pop_back();
  return buckets;
  //@ wrong own_caps
  std::vector<Bucket> buckets(1);
  int64_t bytes = 0;
  (void)first_cap, (void)cap;
  for (int64_t i = std::ssize(elements) - 1; i >= 0; --i) {
    buckets.back().push_back(i);
    bytes += 4 * elements[i];
    if (bytes >= (buckets.size() == 1 ? 1 << 20 : 25 << 20)) {
      buckets.emplace_back();
      bytes = 0;
    }
  }
  if (buckets.back().empty()) buckets.pop_back();
  return buckets;
  //@ wrong first_only
  (void)cap;
  std::vector<Bucket> buckets(1);
  int64_t bytes = 0;
  for (int64_t i = std::ssize(elements) - 1; i >= 0; --i) {
    buckets.back().push_back(i);
    bytes += 4 * elements[i];
    if (bytes >= first_cap) {
      buckets.emplace_back();
      bytes = 0;
    }
  }
  if (buckets.back().empty()) buckets.pop_back();
  return buckets;
  //@ wrong empty
  std::vector<Bucket> buckets(1);
  int64_t bytes = 0;
  for (int64_t i = std::ssize(elements) - 1; i >= 0; --i) {
    buckets.back().push_back(i);
    bytes += 4 * elements[i];
    if (bytes >= (buckets.size() == 1 ? first_cap : cap)) {
      buckets.emplace_back();
      bytes = 0;
    }
  }
  return buckets;
  //@ wrong carried
  std::vector<Bucket> buckets(1);
  int64_t bytes = 0;
  for (int64_t i = std::ssize(elements) - 1; i >= 0; --i) {
    buckets.back().push_back(i);
    bytes += 4 * elements[i];
    const auto limit = buckets.size() == 1 ? first_cap : cap;
    if (bytes >= limit) {
      buckets.emplace_back();
      bytes -= limit;
    }
  }
  if (buckets.back().empty()) buckets.pop_back();
  return buckets;
  //@ wrong last
  std::vector<Bucket> buckets;
  Bucket open;
  int64_t bytes = 0;
  for (int64_t i = std::ssize(elements) - 1; i >= 0; --i) {
    open.push_back(i);
    bytes += 4 * elements[i];
    if (bytes < (buckets.empty() ? first_cap : cap)) continue;
    buckets.push_back(open);
    open.clear();
    bytes = 0;
  }
  return buckets;
  //@ end
}

// Linear layers of these widths, in sequence.
struct Net : torch::nn::Module {
  explicit Net(const std::vector<int64_t>& widths) {
    for (size_t i = 1; i < widths.size(); ++i)
      layers.push_back(
          register_module("fc" + std::to_string(i), torch::nn::Linear(widths[i - 1], widths[i])));
  }
  torch::Tensor forward(torch::Tensor x) {
    for (auto& layer : layers) x = layer(x);
    return x;
  }
  std::vector<torch::nn::Linear> layers;
};

// Runs two steps and returns DDP's own buckets.
std::vector<Bucket> ddp_buckets(const lockstep::Session& session, const std::vector<int64_t>& widths) {
  auto model = lockstep::ddp(Net(widths), session);
  for (int step = 0; step < 2; ++step) {  // DDP arranges its buckets after the first
    model->zero_grad();
    model->forward(torch::ones({1, widths.front()})).sum().backward();
  }
  std::map<std::string, int64_t> number;
  for (const auto& [name, parameter] : model->named_parameters()) number.emplace(name, std::ssize(number));
  std::vector<Bucket> buckets;
  for (const auto& names : model->bucket_names()) {
    buckets.emplace_back();
    for (const auto& name : names) buckets.back().push_back(number.at(name));
  }
  return buckets;
}

void show(const std::string& name, const std::vector<Bucket>& buckets) {
  for (const auto& bucket : buckets) lockstep::show(name, bucket);
}

int main(int argc, char** argv) {
  return lockstep::run([&] {
    std::vector<int64_t> widths;
    for (int i = 1; i < argc; ++i) widths.push_back(std::stoll(argv[i]));
    if (widths.empty()) widths = {16, 1024, 512, 10};

    lockstep::Session session;
    std::vector<int64_t> elements;
    for (size_t i = 1; i < widths.size(); ++i) {
      elements.push_back(widths[i - 1] * widths[i]);  // a layer's weight
      elements.push_back(widths[i]);                  // and its bias
    }

    show("bucket", pack(elements, 1 << 20, 25 << 20));  // DDP's own caps: 1 MiB, then 25
    show("DDP's bucket", ddp_buckets(session, widths));
    show("small bucket", pack({3, 300, 300, 9}, 40, 1210));  // as above
  });
}
