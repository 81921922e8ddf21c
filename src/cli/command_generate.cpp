#include <cstdio>

#include <fmt/format.h>

#include "base/error.h"
#include "cli/commands.h"
#include "cli/common.h"
#include "formats/byte_tokenizer.h"
#include "io/posix_file_system.h"
#include "train/checkpoints.h"
#include "train/generate.h"
#include "train/setup.h"

namespace plimsoll::cli {

void generate_command(const GenerateOptions& options) {
  io::PosixFileSystem file_system;
  const config::Run run = read_run(file_system, options.run);
  if (run.model.family == model::Family::bert)
    base::bad_input("{}: a bert model fills in masked tokens; it cannot continue a text", run.where("model"));
  train::Session session(
      train::session_options(run, {.train = false, .evaluate = false, .infer = model::MicroBatch{1, run.batch.sequence}}));
  train::load_weights(file_system, checkpoint_folder(run), session);
  const formats::ByteTokenizer tokenizer;
  std::vector<std::int32_t> prompt = tokenizer.encode(options.prompt);
  // A text has to start somewhere: a new line is where the corpus's own texts start.
  if (prompt.empty()) prompt.push_back('\n');
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
