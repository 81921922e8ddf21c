// `plimsoll generate`: text, token by token, by the run's strategy.
#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/error.h"
#include "base/json.h"
#include "cli/commands.h"
#include "cli/common.h"
#include "cli/say.h"
#include "formats/byte_tokenizer.h"
#include "formats/token_source.h"
#include "formats/tokenizer/text_stream.h"
#include "formats/tokenizer/tokenizer.h"
#include "formats/tokenizer/utf8.h"
#include "io/posix_file_system.h"
#include "observe/clock.h"
#include "train/generation/generate.h"
#include "train/ranks.h"
#include "train/setup/forward_run.h"
#include "train/setup/setup.h"
#include "train/setup/text.h"

namespace plimsoll::cli {

namespace {

using base::Json;
using formats::tokenizer::Tokenizer;

// So many rows of a prompt make a matrix product as efficient as it gets.
constexpr std::int64_t kMostPromptRows = 128;

// The run's tokenizer. Where a model folder has none, bytes would be read by a model that does not know them.
std::shared_ptr<const Tokenizer> tokenizer_of(io::FileSystem& file_system, const config::Run& run) {
  auto tokenizer = train::open_tokenizer(file_system, run);
  const bool none = !run.model_path.empty() && !run.given("data.tokenizer") && run.data.tokenizer == "bytes";
  if (none && run.model.vocab != formats::ByteTokenizer::kVocab) {
    base::bad_input(
        "{}: found no tokenizer (tokenizer.json or tokenizer.model); name one with --set data.tokenizer=FILE, or give --prompt-ids",
        run.model_path);
  }
  return tokenizer;
}

// How a prompt becomes ids and ids become text; where the prompt is given as ids, text is ids too.
class Words {
 public:
  Words(std::shared_ptr<const Tokenizer> tokenizer, const GenerateOptions& options)
      : tokenizer_(std::move(tokenizer)), decoder_(tokenizer_) {
    if (!options.prompt_ids.empty()) {
      prompt_ = options.prompt_ids;
      text_ = fmt::format("{}", fmt::join(prompt_, " "));
      return;
    }
    prompt_ = tokenizer_->before();
    tokenizer_->encode(options.prompt, prompt_);
    // A text has to start somewhere: a new line is where the corpus's own texts start.
    if (prompt_.empty()) tokenizer_->encode("\n", prompt_);
    text_ = options.prompt;
    decoder_.start(prompt_);
  }

  const std::vector<std::int32_t>& prompt() const { return prompt_; }
  const std::string& text() const { return text_; }  // of the prompt
  std::optional<std::int32_t> end() const { return tokenizer_ == nullptr ? std::nullopt : tokenizer_->end_of_text(); }

  // What can be shown now that the token is there, and at the end what was kept back. A terminal never gets half a
  // character.
  std::string next(std::int32_t token) { return tokenizer_ == nullptr ? fmt::format(" {}", token) : whole_.push(decoder_.next(token)); }
  std::string finish() { return tokenizer_ == nullptr ? std::string() : whole_.push(decoder_.finish()) + whole_.finish(); }

 private:
  std::shared_ptr<const Tokenizer> tokenizer_;
  formats::tokenizer::StreamDecoder decoder_;
  formats::tokenizer::TextStream whole_;
  std::vector<std::int32_t> prompt_;
  std::string text_;
};

// Ids after which a text is over: what the tokenizer and the folder's configuration say, or what ends the run's documents.
std::vector<std::int64_t> end_tokens(const config::Run& run, const train::StoredModel& stored, const Words& words) {
  std::vector<std::int64_t> ends;
  if (words.end()) ends.push_back(*words.end());
  if (run.data.document_end >= 0) ends.push_back(run.data.document_end);
  if (const formats::HfDirectory* folder = stored.folder())
    ends.insert(ends.end(), folder->end_tokens().begin(), folder->end_tokens().end());
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

void print_json(const Made& made, std::int64_t prompt_tokens, std::int64_t context) {
  Json tokens = Json::array();
  for (const std::int32_t token : made.tokens) tokens.push(Json(token));
  const double decoding = made.seconds - made.first_seconds;
  const auto later = static_cast<double>(made.tokens.size()) - 1.0;
  fmt::print("{}\n", base::write_json(Json::object({{"text", formats::tokenizer::repair_utf8(made.text)},
                                                    {"tokens", std::move(tokens)},
                                                    {"prompt_tokens", prompt_tokens},
                                                    {"context", context},
                                                    {"stopped", made.ended ? "end" : "count"},
                                                    {"first_token_seconds", made.first_seconds},
                                                    {"tokens_per_second", decoding > 0.0 ? later / decoding : 0.0}})));
}

// What all ranks write from.
struct Task {
  const GenerateOptions& options;
  const config::Run& run;
  const train::StoredModel& stored;
  train::Programs programs;
  std::vector<std::int32_t> prompt;
  std::vector<std::int64_t> ends;
};

// What must be the same on all of them beside the run's settings.
std::vector<collectives::Field> fields_of(const Task& task) {
  const GenerateOptions& options = task.options;
  return {{"prompt", fmt::format("{}", fmt::join(task.prompt, " "))},
          {"--tokens", std::to_string(options.tokens)},
          {"--temperature", fmt::format("{}", options.temperature)},
          {"--top-k", std::to_string(options.top_k)},
          {"--top-p", fmt::format("{}", options.top_p)},
          {"--seed", std::to_string(options.seed.value_or(task.run.seed))},
          {"--ignore-end", options.ignore_end ? "given" : "not given"}};
}

bool show_now(const GenerateOptions& options, const std::string& text) {
  if (options.run.json) return true;
  std::fwrite(text.data(), 1, text.size(), stdout);
  return std::fflush(stdout) == 0;
}

// What each rank does: all of them make the text, and the one that was given words for it prints it.
Made write_text(const Task& task, Words* words, collectives::Transport* transport) {
  const GenerateOptions& options = task.options;
  io::PosixFileSystem file_system;
  train::Programs programs = task.programs;
  programs.transport = transport;
  train::Session session = train::make_session(file_system, task.run, programs, train::capacity_of(task.run));
  const std::vector<std::string> absent = train::load_weights(task.stored, session);
  if (words != nullptr) {
    say_absent(task.stored.origin(), absent);
    show_now(options, words->text());
  }
  const train::Sampling sampling{.temperature = options.temperature,
                                 .top_k = options.top_k,
                                 .top_p = options.top_p,
                                 .seed = static_cast<std::uint64_t>(options.seed.value_or(task.run.seed))};
  Made made;
  train::CachedNextToken next(session);
  const double start = observe::seconds_now();
  const auto on_token = [&](std::int32_t token) {
    if (made.tokens.empty()) made.first_seconds = observe::seconds_now() - start;
    made.ended = std::find(task.ends.begin(), task.ends.end(), token) != task.ends.end();
    if (made.ended) return false;
    made.tokens.push_back(token);
    if (words == nullptr) return true;
    const std::string text = words->next(token);
    made.text += text;
    return show_now(options, text);
  };
  train::generate(next, task.prompt, options.tokens, sampling, on_token, session.world());
  made.seconds = observe::seconds_now() - start;
  return made;
}

void finish(const GenerateOptions& options, Words& words, Made& made, std::int64_t context) {
  const auto prompt_tokens = static_cast<std::int64_t>(words.prompt().size());
  const std::string rest = words.finish();
  made.text += rest;
  show_now(options, rest + "\n");
  if (options.run.json) print_json(made, prompt_tokens, context);
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) base::fail(base::ErrorKind::other, "the text could not be written");
  if (prompt_tokens + std::ssize(made.tokens) > context)
    say("the text is longer than the context of {} tokens: the model wrote its end without seeing its beginning\n", context);
}

}  // namespace

void generate_command(const GenerateOptions& options) {
  io::PosixFileSystem file_system;
  const Source source = read_source(file_system, options.run);
  if (source.run.model.family == model::Family::bert)
    base::bad_input("{}: a bert model fills in masked tokens; it cannot continue a text", source.run.where("model"));
  Words words(options.prompt_ids.empty() ? tokenizer_of(file_system, source.run) : nullptr, options);
  const std::vector<std::int32_t>& prompt = words.prompt();
  const auto prompt_tokens = static_cast<std::int64_t>(prompt.size());
  formats::check_ids(*formats::tokens_in_memory("--prompt", prompt), 0, prompt, source.run.model.vocab);

  const train::StoredModel stored = train::StoredModel::open(file_system, source.place, source.run);
  if (train::is_first_process()) say_passed_over(stored.passed_over());
  const std::int64_t context = context_of(source.run);
  const train::Decoding decoding{.slots = std::min(context, prompt_tokens + options.tokens),
                                 .prompt_rows = std::clamp<std::int64_t>(prompt_tokens - 1, 1, std::min(context, kMostPromptRows))};
  const train::Programs programs{.train = false, .decode = decoding, .draw_parameters = false};
  const std::int64_t ranks = options.run.ranks > 0 ? options.run.ranks : train::ranks_started();
  const config::Run run = train::without_training(source.run, programs, ranks);
  const Task task{options,  run,    stored,
                  programs, prompt, options.ignore_end ? std::vector<std::int64_t>{} : end_tokens(run, stored, words)};
  train::run_ranks({.run = run,
                    .trains = false,
                    .processes = command_of_ranks(options.processes),
                    .also = fields_of(task),
                    .complain = complain_of_ranks},
                   [&](collectives::Transport* transport) {
                     Made made = write_text(task, speaks(transport) ? &words : nullptr, transport);
                     if (speaks(transport)) finish(options, words, made, context);
                   });
}

}  // namespace plimsoll::cli
