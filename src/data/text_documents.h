// Documents of text files, read in stretches of bounded size.
//
// A *document* is a whole file, a line, a paragraph (lines up to an empty one), or the text of a JSON object on a line
// (".jsonl"). Files as large as a disk are read in *parts*: a long document comes in several, cut where the tokenizer does
// not mind (Tokenizer::cuts_at_spaces), or else after a line.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "io/file_system.h"

namespace plimsoll::data {

enum class DocumentUnit { file, line, paragraph };

struct TextOptions {
  DocumentUnit unit = DocumentUnit::file;  // of plain text; JSON lines are one document each
  std::string field = "text";              // of JSON lines: the member that holds the text
  bool cut_at_spaces = false;
  std::size_t part_bytes = std::size_t{1} << 18;
  std::size_t longest_document = std::size_t{256} << 20;  // of lines, paragraphs and JSON lines, which are held whole
};

// One part of a document. Parts without text are possible, at the end of a document.
struct TextPart {
  std::string_view text;
  bool ends_document = false;
};

// Calls `take` for every part of the file in order, and with the bytes of the file that are done so far.
void read_documents(io::FileSystem& file_system, const io::Path& path, const TextOptions& options,
                    const std::function<void(const TextPart&, std::int64_t)>& take);

// Whether the file is read as JSON lines: its name ends in .jsonl.
bool is_json_lines(const io::Path& path);

// Where to cut `text`, of which more follows, as late as possible; for tests.
std::size_t cut_of(std::string_view text, bool at_spaces);

}  // namespace plimsoll::data
