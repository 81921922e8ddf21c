// `plimsoll data`: text in, token files out.
#include <charconv>
#include <cstdio>

#include <fmt/format.h>

#include "base/bytes.h"
#include "base/error.h"
#include "base/json.h"
#include "cli/commands.h"
#include "cli/say.h"
#include "data/part_encoder.h"
#include "data/text_documents.h"
#include "formats/token_file.h"
#include "formats/token_writer.h"
#include "formats/tokenizer/tokenizer.h"
#include "io/files.h"
#include "io/posix_file_system.h"
#include "observe/clock.h"
#include "observe/progress_line.h"
#include "observe/terminal.h"

namespace plimsoll::cli {

namespace {

using base::Json;
using formats::tokenizer::Tokenizer;

struct Input {
  io::Path path;
  std::int64_t bytes = 0;
};

std::vector<Input> find_inputs(io::FileSystem& file_system, const std::vector<std::string>& patterns) {
  std::vector<Input> inputs;
  for (const std::string& pattern : patterns) {
    for (const io::Path& path : formats::find_data(file_system, pattern)) {
      const auto status = file_system.status(path);
      if (!status) base::bad_input("there is no file '{}'; expected text", path.string());
      if (formats::recognise_token_file(file_system, path)) base::bad_input("'{}' holds tokens already; expected text", path.string());
      inputs.push_back({path, status->size});
    }
  }
  return inputs;
}

formats::ShardFormat format_of(const std::string& name) {
  if (name == "llmc") return formats::ShardFormat::llmc;
  return name == "megatron" ? formats::ShardFormat::megatron : formats::ShardFormat::headerless;
}

data::DocumentUnit unit_of(const std::string& name) {
  if (name == "line") return data::DocumentUnit::line;
  return name == "paragraph" ? data::DocumentUnit::paragraph : data::DocumentUnit::file;
}

std::optional<std::int32_t> end_token_of(const std::string& wish, const Tokenizer& tokenizer) {
  if (wish == "none") return std::nullopt;
  if (wish == "auto") return tokenizer.end_of_text();
  if (const auto id = tokenizer.token_id(wish)) return id;
  std::int32_t id = -1;
  const auto [end, error] = std::from_chars(wish.data(), wish.data() + wish.size(), id);
  if (error != std::errc() || end != wish.data() + wish.size() || id < 0 || id >= tokenizer.vocab()) {
    base::bad_input("--end-token is \"{}\"; expected auto, none, a token of the tokenizer ({}) or an id below {}", wish,
                    tokenizer.describe(), tokenizer.vocab());
  }
  return id;
}

// How far it is, on standard error: one line redrawn on a terminal, one now and then elsewhere.
class Progress {
 public:
  explicit Progress(std::int64_t bytes)
      : bytes_(bytes), terminal_(observe::detect_terminal(2)), started_(clock_.seconds()), shown_(started_) {}
  ~Progress() {
    if (line_open_) say("\r\x1b[K");
  }

  void show(std::int64_t done, std::int64_t tokens) {
    const double now = clock_.seconds();
    if (now - shown_ < (terminal_.interactive ? 0.1 : 10.0)) return;
    shown_ = now;
    const double rate = static_cast<double>(done) / std::max(now - started_, 1e-9);
    const std::string left = observe::duration_text(static_cast<double>(bytes_ - done) / std::max(rate, 1.0));
    const std::string text =
        fmt::format("{} of {}  {} tokens  {:.1f} MB/s  {} left", base::to_string(base::Bytes{done}), base::to_string(base::Bytes{bytes_}),
                    observe::rate_text(static_cast<double>(tokens)), rate / 1e6, left);
    say("{}{}{}", terminal_.interactive ? "\r" : "", text, terminal_.interactive ? "\x1b[K" : "\n");
    std::fflush(stderr);
    line_open_ = terminal_.interactive;
  }
  double seconds() const { return clock_.seconds() - started_; }

 private:
  observe::SystemClock clock_;
  std::int64_t bytes_;
  observe::Terminal terminal_;
  double started_;
  double shown_;
  bool line_open_ = false;
};

struct Result {
  std::vector<formats::WrittenShard> shards;
  std::int64_t tokens = 0;
  std::int64_t documents = 0;
  std::int64_t bytes = 0;       // of the text that was encoded
  std::int64_t file_bytes = 0;  // of the files that it stands in
  double seconds = 0.0;
};

Result make_tokens(io::FileSystem& file_system, const DataOptions& options, const Tokenizer& tokenizer,
                   std::optional<std::int32_t> end_token) {
  const std::vector<Input> inputs = find_inputs(file_system, options.inputs);
  Result result;
  for (const Input& input : inputs) result.file_bytes += input.bytes;
  formats::TokenWriter writer(file_system, {.out = options.out,
                                            .format = format_of(options.format),
                                            .vocab = tokenizer.vocab(),
                                            .shard_tokens = options.shard_tokens,
                                            .overwrite = options.force});
  Progress progress(result.file_bytes);
  const data::TextOptions text_options{
      .unit = unit_of(options.documents), .field = options.field, .cut_at_spaces = tokenizer.cuts_at_spaces()};
  std::vector<std::int32_t> ids;
  data::PartEncoder encoder(tokenizer);
  std::int64_t before = 0;
  for (const Input& input : inputs) {
    data::read_documents(file_system, input.path, text_options, [&](const data::TextPart& part, std::int64_t done) {
      ids.clear();
      encoder.encode(part, ids);
      result.bytes += static_cast<std::int64_t>(part.text.size());
      if (part.ends_document && end_token) ids.push_back(*end_token);
      writer.write(ids);
      if (part.ends_document) writer.end_document();
      progress.show(before + done, writer.tokens());
    });
    before += input.bytes;
  }
  result.shards = writer.finish();
  result.tokens = writer.tokens();
  result.documents = writer.documents();
  result.seconds = progress.seconds();
  return result;
}

void print_json(const Result& result, const Tokenizer& tokenizer) {
  Json files = Json::array();
  for (const formats::WrittenShard& shard : result.shards)
    files.push(Json::object({{"path", shard.path.string()}, {"tokens", shard.tokens}}));
  fmt::print("{}\n", base::write_json(Json::object({{"files", std::move(files)},
                                                    {"tokens", result.tokens},
                                                    {"documents", result.documents},
                                                    {"bytes", result.bytes},
                                                    {"file_bytes", result.file_bytes},
                                                    {"vocab", tokenizer.vocab()},
                                                    {"seconds", result.seconds}})));
}

void print_text(const Result& result, const DataOptions& options, const Tokenizer& tokenizer, std::optional<std::int32_t> end_token) {
  for (const formats::WrittenShard& shard : result.shards) fmt::print("{}: {} tokens\n", shard.path.string(), shard.tokens);
  const std::string files =
      result.file_bytes == result.bytes ? "" : fmt::format(" (in files of {})", base::to_string(base::Bytes{result.file_bytes}));
  fmt::print("{} of text{}, {} documents, {} tokens ({:.2f} bytes each), {}, in {}\n", base::to_string(base::Bytes{result.bytes}), files,
             result.documents, result.tokens,
             static_cast<double>(result.bytes) / static_cast<double>(std::max<std::int64_t>(1, result.tokens)), tokenizer.describe(),
             observe::duration_text(result.seconds));
  if (end_token) fmt::print("each document ends with token {}: set \"data.document_end\" to it to keep documents apart\n", *end_token);
  if (options.format == "nanogpt" && tokenizer.vocab() > 65536) fmt::print("ids take four bytes: set \"data.token_bytes\" to 4\n");
}

}  // namespace

void data_command(const DataOptions& options) {
  io::PosixFileSystem file_system;
  const auto tokenizer = formats::tokenizer::open_tokenizer(file_system, options.tokenizer);
  const auto end_token = end_token_of(options.end_token, *tokenizer);
  const Result result = make_tokens(file_system, options, *tokenizer, end_token);
  if (options.json) {
    print_json(result, *tokenizer);
  } else {
    print_text(result, options, *tokenizer, end_token);
  }
}

}  // namespace plimsoll::cli
