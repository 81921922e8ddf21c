// Text of a model with random weights, token by token through the cache: a step is so many tokens behind a prompt.
// --profile prints where the time of one token goes instead.
#include "train/generation/generate.h"
#include "executor/core/timeline.h"
#include "families/families.h"
#include "serve.h"

namespace plimsoll::bench {
namespace {

struct Options {
  ServeOptions serve;
  std::string model = "gpt2";
  std::string precision = "f32";
  std::int64_t prompt = 16;
  std::int64_t tokens = 32;
  bool profile = false;
};

train::Session make_session(const Options& options) {
  const std::optional<model::Model> model = families::preset(options.model);
  if (!model) base::bad_input("--model: found \"{}\", expected a preset such as gpt2", options.model);
  train::SessionOptions session{
      .forward = train::forward_of(*model), .name = options.model, .training = {}, .threads = options.serve.threads};
  session.training.precision = options.precision == "bf16" ? model::Precision::bf16 : model::Precision::f32;
  session.train = false;
  session.decode = train::Decoding{.slots = options.prompt + options.tokens, .prompt_rows = options.prompt};
  return train::Session(session);
}

std::vector<std::int32_t> prompt_of(const Options& options) {
  std::vector<std::int32_t> prompt;
  for (std::int64_t place = 0; place < options.prompt; ++place) prompt.push_back(static_cast<std::int32_t>(100 * (place + 1)));
  return prompt;
}

void profile(const Options& options, train::Session& session) {
  train::CachedNextToken next(session);
  next.logits(prompt_of(options));
  executor::Timeline timeline;
  session.input("decode", "tokens", 0)[0] = 1;
  session.input("decode", "positions", 0)[0] = static_cast<std::int32_t>(options.prompt);
  const Seconds seconds = timed([&] { session.executor().run("decode", &timeline); });
  fmt::print("{:.3f} ms for one token\n", 1e3 * seconds.wall);
  for (const executor::KernelTime& kernel : executor::by_kernel(timeline)) {
    fmt::print("  {:<28} {:>4} runs {:>8.3f} ms\n", kernel.kernel, kernel.runs, 1e3 * kernel.seconds);
  }
}

void run(const Options& options) {
  train::Session session = make_session(options);
  if (options.profile) return profile(options, session);
  const std::vector<std::int32_t> prompt = prompt_of(options);
  const auto step = [&] {
    train::CachedNextToken next(session);
    train::generate(next, prompt, options.tokens, {}, [](std::int32_t) { return true; });
  };
  serve(options.serve, step, [&](double best) {
    return base::Json::object({{"model", options.model},
                               {"precision", options.precision},
                               {"tokens", options.tokens},
                               {"tokens_per_second", static_cast<double>(options.tokens) / best}});
  });
}

}  // namespace
}  // namespace plimsoll::bench

int main(int count, char** arguments) {
  plimsoll::bench::Options options;
  CLI::App app("Text of a model with random weights, token by token.");
  plimsoll::bench::add_options(app, options.serve);
  app.add_option("--model", options.model)->capture_default_str();
  app.add_option("--precision", options.precision)->check(CLI::IsMember({"f32", "bf16"}))->capture_default_str();
  app.add_option("--prompt", options.prompt, "tokens of the prompt")->check(CLI::PositiveNumber)->capture_default_str();
  app.add_option("--tokens", options.tokens, "tokens to make in a step")->check(CLI::PositiveNumber)->capture_default_str();
  app.add_flag("--profile", options.profile, "print one token's time by kernel");
  return plimsoll::bench::run_program(app, count, arguments, [&] { plimsoll::bench::run(options); });
}
