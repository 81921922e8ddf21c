#include "io/operation.h"

namespace plimsoll::io {

std::string_view name_of(Verb verb) {
  switch (verb) {
    case Verb::open: return "open";
    case Verb::close: return "close";
    case Verb::size: return "size";
    case Verb::read: return "read";
    case Verb::write: return "write";
    case Verb::append: return "append";
    case Verb::sync: return "sync";
    case Verb::map: return "map";
    case Verb::sync_directory: return "sync_directory";
    case Verb::rename: return "rename";
    case Verb::remove: return "remove";
    case Verb::make_directory: return "make_directory";
    case Verb::list: return "list";
    case Verb::status: return "status";
    case Verb::free_space: return "free_space";
  }
  return "?";
}

std::string to_string(const Operation& operation) {
  std::string text = fmt::format("{} {}", name_of(operation.verb), operation.path.string());
  switch (operation.verb) {
    case Verb::read:
    case Verb::write: text += fmt::format(" offset {} length {}", operation.offset, operation.length); break;
    case Verb::append: text += fmt::format(" length {}", operation.length); break;
    case Verb::rename: text += fmt::format(" -> {}", operation.to.string()); break;
    case Verb::open: text += operation.made ? " (made)" : ""; break;
    default: break;
  }
  return text;
}

}  // namespace plimsoll::io
