#include <chrono>
#include <cstdio>

#include <fmt/format.h>

#include "base/error.h"
#include "base/json.h"
#include "cli/commands.h"
#include "cli/common.h"
#include "cli/text_stream.h"
#include "formats/byte_tokenizer.h"
#include "formats/token_source.h"
#include "io/posix_file_system.h"
#include "train/generate.h"
#include "train/setup.h"

namespace plimsoll::cli {

namespace {

using base::Json;

// So many rows of a prompt make a matrix product as efficient as it gets.
constexpr std::int64_t kMostPromptRows = 128;

// How a prompt becomes ids and ids become text: bytes, or the ids themselves.
class Words {
 public:
  Words(const GenerateOptions& options, const config::Run& run) : ids_(!options.prompt_ids.empty()) {
    if (!ids_ && run.data.tokenizer != "bytes") {
      base::bad_input("{}: \"data.tokenizer\" is \"{}\"; give the prompt as ids (--prompt-ids)", run.where("data.tokenizer"),
                      run.data.tokenizer);
    }
  }

  std::vector<std::int32_t> encode(const GenerateOptions& options) const {
    if (ids_) return {options.prompt_ids.begin(), options.prompt_ids.end()};
    std::vector<std::int32_t> tokens = formats::ByteTokenizer().encode(options.prompt);
    // A text has to start somewhere: a new line is where the corpus's own texts start.
    if (tokens.empty()) tokens.push_back('\n');
    return tokens;
  }

  std::string decode(std::int32_t token) const {
    return ids_ ? fmt::format(" {}", token) : formats::ByteTokenizer().decode(std::span(&token, 1));
  }
  std::string prompt(const GenerateOptions& options) const {
    return ids_ ? fmt::format("{}", fmt::join(options.prompt_ids, " ")) : options.prompt;
  }

 private:
  bool ids_;
};

// Ids after which a text is over: what the folder's configuration says, or what ends the run's documents.
std::vector<std::int64_t> end_tokens(const config::Run& run, const train::StoredModel& stored) {
  std::vector<std::int64_t> ends;
  if (run.data.document_end >= 0) ends.push_back(run.data.document_end);
  if (const formats::HfDirectory* folder = stored.folder()) {
    const Json* end = folder->config().find("eos_token_id");
    if (end != nullptr && end->is_integer()) ends.push_back(end->as_integer());
    if (end != nullptr && end->is_array()) {
      for (const Json& each : end->as_array()) ends.push_back(each.as_integer());
    }
  }
  return ends;
}

// Positions that the weights know: all of a model that came from a folder, else those that the run trains.
std::int64_t context_of(const config::Run& run) {
  return run.model_path.empty() ? std::min(run.model.context, run.batch.sequence) : run.model.context;
}

struct Made {
  std::vector<std::int32_t> tokens;
  std::string text;
  bool ended = false;
  double first_seconds = 0.0;  // until the first token
  double seconds = 0.0;        // of all
};

double seconds_now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

void print_json(const Made& made, std::int64_t prompt_tokens, std::int64_t context) {
  Json tokens = Json::array();
  for (const std::int32_t token : made.tokens) tokens.push(Json(token));
  const double decoding = made.seconds - made.first_seconds;
  const auto later = static_cast<double>(made.tokens.size()) - 1.0;
  fmt::print("{}\n", base::write_json(Json::object({{"text", with_replacements(made.text)},
                                                    {"tokens", std::move(tokens)},
                                                    {"prompt_tokens", prompt_tokens},
                                                    {"context", context},
                                                    {"stopped", made.ended ? "end" : "count"},
                                                    {"first_token_seconds", made.first_seconds},
                                                    {"tokens_per_second", decoding > 0.0 ? later / decoding : 0.0}})));
}

}  // namespace

void generate_command(const GenerateOptions& options) {
  io::PosixFileSystem file_system;
  const Source source = read_source(file_system, options.run);
  const config::Run& run = source.run;
  if (run.model.family == model::Family::bert)
    base::bad_input("{}: a bert model fills in masked tokens; it cannot continue a text", run.where("model"));
  const Words words(options, run);
  const std::vector<std::int32_t> prompt = words.encode(options);
  const auto prompt_tokens = static_cast<std::int64_t>(prompt.size());
  formats::check_ids(*formats::tokens_in_memory("--prompt", prompt), 0, prompt, run.model.vocab);

  const train::StoredModel stored = train::StoredModel::open(file_system, source.place, run);
  const std::int64_t context = context_of(run);
  const train::Decoding decoding{.slots = std::min(context, prompt_tokens + options.tokens),
                                 .prompt_rows = std::clamp<std::int64_t>(prompt_tokens - 1, 1, std::min(context, kMostPromptRows))};
  train::Session session(train::session_options(run, {.train = false, .evaluate = false, .decode = decoding, .draw_parameters = false}));
  say_absent(stored.origin(), train::load_weights(stored, session));

  TextStream stream;
  const auto show = [&](const std::string& text) {
    if (options.run.json) return true;
    std::fwrite(text.data(), 1, text.size(), stdout);
    return std::fflush(stdout) == 0;
  };
  show(words.prompt(options));
  const std::vector<std::int64_t> ends = options.ignore_end ? std::vector<std::int64_t>{} : end_tokens(run, stored);
  const train::Sampling sampling{.temperature = options.temperature,
                                 .top_k = options.top_k,
                                 .top_p = options.top_p,
                                 .seed = static_cast<std::uint64_t>(options.seed.value_or(run.seed))};
  Made made;
  train::CachedNextToken next(session);
  const double start = seconds_now();
  train::generate(next, prompt, options.tokens, sampling, [&](std::int32_t token) {
    if (made.tokens.empty()) made.first_seconds = seconds_now() - start;
    made.ended = std::find(ends.begin(), ends.end(), token) != ends.end();
    if (made.ended) return false;
    made.tokens.push_back(token);
    made.text += words.decode(token);
    return show(stream.push(words.decode(token)));
  });
  made.seconds = seconds_now() - start;
  show(stream.finish() + "\n");
  if (options.run.json) print_json(made, prompt_tokens, context);
  const std::int64_t length = prompt_tokens + std::ssize(made.tokens);
  if (length > context) {
    fmt::print(stderr, "the text is longer than the context of {} tokens: the model wrote its end without seeing its beginning\n", context);
  }
}

}  // namespace plimsoll::cli
