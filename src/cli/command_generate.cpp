#include <cstdio>

#include <fmt/format.h>

#include "base/error.h"
#include "cli/commands.h"
#include "cli/common.h"
#include "formats/byte_tokenizer.h"
#include "formats/token_source.h"
#include "io/posix_file_system.h"
#include "train/checkpoints.h"
#include "train/generate.h"
#include "train/setup.h"

namespace plimsoll::cli {

namespace {

std::vector<std::int32_t> prompt_tokens(const std::string& prompt, std::int64_t vocab) {
  std::vector<std::int32_t> tokens = formats::ByteTokenizer().encode(prompt);
  // A text has to start somewhere: a new line is where the corpus's own texts start.
  if (tokens.empty()) tokens.push_back('\n');
  formats::check_ids(*formats::tokens_in_memory("--prompt", tokens), 0, tokens, vocab);
  return tokens;
}

}  // namespace

void generate_command(const GenerateOptions& options) {
  io::PosixFileSystem file_system;
  const config::Run run = read_run(file_system, options.run);
  if (run.model.family == model::Family::bert)
    base::bad_input("{}: a bert model fills in masked tokens; it cannot continue a text", run.where("model"));
  const std::vector<std::int32_t> prompt = prompt_tokens(options.prompt, run.model.vocab);
  train::Session session(
      train::session_options(run, {.train = false, .evaluate = false, .infer = model::MicroBatch{1, run.batch.sequence}}));
  train::load_weights(file_system, checkpoint_folder(run), session);
  const formats::ByteTokenizer tokenizer;
  std::fputs(options.prompt.c_str(), stdout);
  train::generate(
      session, prompt, options.tokens,
      {.temperature = options.temperature, .top_k = options.top_k, .top_p = options.top_p, .seed = static_cast<std::uint64_t>(run.seed)},
      [&](std::int32_t token) {
        const std::string text = tokenizer.decode(std::span(&token, 1));
        std::fwrite(text.data(), 1, text.size(), stdout);
        return std::fflush(stdout) == 0;
      });
  std::fputs("\n", stdout);
}

}  // namespace plimsoll::cli
