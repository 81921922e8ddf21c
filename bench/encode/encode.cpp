// Encodes the documents of a JSON-lines file (each line a JSON text) on one thread; bench/peers/encode.py does the same with the
// `tokenizers` and `sentencepiece` packages. With --ids it writes what came out, so that the two can be compared.
#include "formats/tokenizer/tokenizer.h"

#include "io/files.h"
#include "io/posix_file_system.h"
#include "serve.h"

namespace plimsoll {
namespace {

struct Options {
  bench::ServeOptions serve;
  std::string tokenizer;
  std::string documents;
  std::string ids;      // i32 ids of each document, then -1
  std::string decoded;  // JSON lines: each document's ids as text again
};

void add_options(CLI::App& app, Options& options) {
  bench::add_options(app, options.serve);
  app.add_option("--tokenizer", options.tokenizer, "tokenizer.json, .model or \"bytes\"")->required();
  app.add_option("--documents", options.documents, "JSON lines, each a text")->required();
  app.add_option("--ids", options.ids, "write the ids to this file and end");
  app.add_option("--decoded", options.decoded, "write what the ids decode to into this file and end");
}

std::vector<std::string> read_documents(io::FileSystem& file_system, const std::string& path) {
  const std::string text = io::read_text(file_system, path);
  std::vector<std::string> documents;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    documents.push_back(base::parse_json(std::string_view(text).substr(begin, end - begin), path, {.strict = true}).as_string());
    begin = end + 1;
  }
  return documents;
}

void write_ids(io::FileSystem& file_system, const Options& options, const formats::tokenizer::Tokenizer& tokenizer,
               const std::vector<std::string>& documents) {
  std::vector<std::int32_t> ids;
  std::string decoded;
  for (const std::string& document : documents) {
    const std::size_t begin = ids.size();
    tokenizer.encode(document, ids);
    if (!options.decoded.empty()) decoded += base::quote_json(tokenizer.decode(std::span(ids).subspan(begin), true)) + "\n";
    ids.push_back(-1);
  }
  if (!options.ids.empty()) io::replace_file(file_system, options.ids, std::as_bytes(std::span(ids)));
  if (!options.decoded.empty()) io::replace_file(file_system, options.decoded, io::as_bytes(decoded));
}

void run(const Options& options) {
  io::PosixFileSystem file_system;
  const auto tokenizer = formats::tokenizer::open_tokenizer(file_system, options.tokenizer);
  const std::vector<std::string> documents = read_documents(file_system, options.documents);
  if (!options.ids.empty() || !options.decoded.empty()) return write_ids(file_system, options, *tokenizer, documents);
  std::int64_t bytes = 0;
  for (const std::string& document : documents) bytes += std::ssize(document);
  std::vector<std::int32_t> ids;
  std::size_t tokens = 0;
  const auto step = [&] {
    tokens = 0;
    for (const std::string& document : documents) {
      ids.clear();
      tokenizer->encode(document, ids);
      tokens += ids.size();
    }
  };
  bench::serve(options.serve, step, [&](double best) {
    return base::Json::object({{"tokenizer", tokenizer->describe()},
                               {"documents", documents.size()},
                               {"bytes", bytes},
                               {"tokens", tokens},
                               {"bytes_per_second", static_cast<double>(bytes) / best}});
  });
}

}  // namespace
}  // namespace plimsoll

int main(int count, char** arguments) {
  CLI::App app("Times a tokenizer");
  plimsoll::Options options;
  plimsoll::add_options(app, options);
  return plimsoll::bench::run_program(app, count, arguments, [&] { plimsoll::run(options); });
}
