#include "data/text_documents.h"

#include <algorithm>

#include "base/error.h"
#include "base/json.h"

namespace plimsoll::data {

namespace {

constexpr std::size_t kReadBytes = std::size_t{1} << 18;

bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
bool continues_character(char c) { return (static_cast<std::uint8_t>(c) & 0xC0) == 0x80; }

// A file read from front to back into a buffer that holds what has not been taken yet.
class Window {
 public:
  Window(io::FileSystem& file_system, const io::Path& path) : file_(file_system, path, io::OpenMode::read) {}

  std::string_view text() const { return std::string_view(buffer_).substr(begin_); }
  std::int64_t done() const { return offset_ - static_cast<std::int64_t>(text().size()); }
  void drop(std::size_t count) { begin_ += count; }

  // Adds more of the file; false at its end.
  bool grow() {
    buffer_.erase(0, begin_);
    begin_ = 0;
    const std::size_t size = buffer_.size();
    buffer_.resize(size + kReadBytes);
    const std::size_t read = file_.read_at(offset_, std::as_writable_bytes(std::span(buffer_).subspan(size)));
    buffer_.resize(size + read);
    offset_ += static_cast<std::int64_t>(read);
    return read > 0;
  }

 private:
  io::File file_;
  std::string buffer_;
  std::size_t begin_ = 0;
  std::int64_t offset_ = 0;
};

class Reader {
 public:
  Reader(io::FileSystem& file_system, const io::Path& path, const TextOptions& options,
         const std::function<void(const TextPart&, std::int64_t)>& take)
      : window_(file_system, path), path_(path.string()), options_(options), take_(take) {}

  void whole_file() {
    bool more = window_.grow();
    while (more) {
      while (more && window_.text().size() < options_.part_bytes) more = window_.grow();
      const std::string_view text = window_.text();
      const std::size_t end = more ? cut_of(text.substr(0, options_.part_bytes), options_.cut_at_spaces) : text.size();
      give(text.substr(0, end), false);
      window_.drop(end);
    }
    give({}, true);
  }

  void lines() {
    for_each_line([&](std::string_view line) {
      if (!line.empty()) give(line, true);
    });
  }

  void paragraphs() {
    std::string paragraph;
    const auto finish = [&] {
      if (!paragraph.empty()) give(paragraph, true);
      paragraph.clear();
    };
    for_each_line([&](std::string_view line) {
      if (line.find_first_not_of(" \t") == std::string_view::npos) return finish();
      if (!paragraph.empty()) paragraph += '\n';
      paragraph += line;
      check_length(paragraph.size());
    });
    finish();
  }

  void json_lines() {
    std::int64_t number = 0;
    for_each_line([&](std::string_view line) {
      ++number;
      if (line.find_first_not_of(" \t") == std::string_view::npos) return;
      const std::string where = fmt::format("{}:{}", path_, number);
      const base::Json json = base::parse_json(line, where, {.strict = true, .max_bytes = options_.longest_document});
      const base::Json* text = json.is_object() ? json.find(options_.field) : nullptr;
      if (text == nullptr || !text->is_string()) {
        base::bad_input("{}: found no text under \"{}\"; expected an object with one on every line", where, options_.field);
      }
      give(text->as_string(), true);
    });
  }

 private:
  void give(std::string_view text, bool ends) { take_({text, ends}, window_.done()); }

  void check_length(std::size_t size) const {
    if (size <= options_.longest_document) return;
    base::bad_input("'{}' has near byte {} a document of more than {} bytes; use whole files as documents, or shorter ones", path_,
                    window_.done(), options_.longest_document);
  }

  // Lines without their ends, "\n" or "\r\n".
  void for_each_line(const std::function<void(std::string_view)>& take_line) {
    std::size_t searched = 0;
    bool more = true;
    while (more || !window_.text().empty()) {
      const std::size_t end = window_.text().find('\n', searched);
      if (end == std::string_view::npos && more) {
        searched = window_.text().size();
        check_length(searched);
        more = window_.grow();
        continue;
      }
      std::string_view line = window_.text().substr(0, end);
      const std::size_t taken = end == std::string_view::npos ? line.size() : end + 1;
      if (line.ends_with('\r')) line.remove_suffix(1);
      take_line(line);
      window_.drop(taken);
      searched = 0;
    }
  }

  Window window_;
  std::string path_;
  TextOptions options_;
  const std::function<void(const TextPart&, std::int64_t)>& take_;
};

}  // namespace

std::size_t cut_of(std::string_view text, bool at_spaces) {
  for (std::size_t at = text.size(); at_spaces && at-- > 2;) {
    if (text[at - 1] == ' ' && is_letter(text[at]) && is_letter(text[at - 2])) return at - 1;
  }
  // Expressions look around among white space, so a line end that stands between two other characters is best.
  const auto is_space = [](char c) { return c == ' ' || (c >= '\t' && c <= '\r'); };
  for (std::size_t at = text.size(); at-- > 2;) {
    if (text[at - 1] == '\n' && !is_space(text[at]) && !is_space(text[at - 2])) return at;
  }
  const std::size_t line = text.rfind('\n');
  if (line != std::string_view::npos) return line + 1;
  std::size_t at = text.size() - 1;
  while (at > 1 && continues_character(text[at])) --at;
  return std::max<std::size_t>(at, 1);
}

bool is_json_lines(const io::Path& path) { return path.extension() == ".jsonl"; }

void read_documents(io::FileSystem& file_system, const io::Path& path, const TextOptions& options,
                    const std::function<void(const TextPart&, std::int64_t)>& take) {
  Reader reader(file_system, path, options, take);
  if (is_json_lines(path)) return reader.json_lines();
  switch (options.unit) {
    case DocumentUnit::file: return reader.whole_file();
    case DocumentUnit::line: return reader.lines();
    case DocumentUnit::paragraph: return reader.paragraphs();
  }
}

}  // namespace plimsoll::data
