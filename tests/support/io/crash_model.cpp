#include "support/io/crash_model.h"

#include <algorithm>
#include <functional>
#include <set>

#include "base/random.h"

namespace plimsoll::io {

namespace {

constexpr std::int64_t kSector = 512;  // the most that a disk writes whole

// A coin for each numbered question, fixed by the seed; seed 0 always says no.
bool keep(std::uint64_t seed, std::string_view what, std::uint64_t a, std::uint64_t b = 0) {
  if (seed == 0) return false;
  const base::RandomBlock bits =
      base::philox({static_cast<std::uint32_t>(a), static_cast<std::uint32_t>(b), 0, 0}, base::random_key(seed, base::hash_name(what)));
  return (bits[0] & 1u) != 0;
}

void overwrite(std::vector<std::byte>& content, std::int64_t offset, std::span<const std::byte> data) {
  const auto begin = static_cast<std::size_t>(offset);
  if (content.size() < begin + data.size()) content.resize(begin + data.size());
  std::copy(data.begin(), data.end(), content.begin() + static_cast<std::ptrdiff_t>(begin));
}

}  // namespace

bool CrashModel::NameChange::touches(std::size_t directory) const {
  return std::any_of(edits.begin(), edits.end(), [&](const NameEdit& edit) { return edit.directory == directory; });
}

CrashModel::CrashModel(const FileTree& durable) {
  add_node(true);
  for (const auto& [path, content] : durable) {
    const std::size_t node = add_node(!content.has_value());
    if (content) nodes_[node].durable = nodes_[node].current = *content;
    Node& parent = nodes_[find_parent(path)];
    parent.durable_names[path.filename().string()] = node;
    parent.current_names[path.filename().string()] = node;
  }
}

std::size_t CrashModel::add_node(bool directory) {
  nodes_.push_back({.directory = directory, .durable = {}, .current = {}, .unsynced = {}, .durable_names = {}, .current_names = {}});
  return nodes_.size() - 1;
}

std::size_t CrashModel::find(const Path& path) const {
  std::size_t node = 0;
  for (const Path& component : path) {
    if (component.empty() || component == ".") continue;
    const auto entry = nodes_[node].current_names.find(component.string());
    PLIMSOLL_CHECK(entry != nodes_[node].current_names.end(), "the log uses '{}' before it was made", path.string());
    node = entry->second;
  }
  return node;
}

void CrashModel::change_names(NameChange change) {
  for (const NameEdit& edit : change.edits) {
    Names& names = nodes_[edit.directory].current_names;
    if (edit.node) {
      names[edit.name] = *edit.node;
    } else {
      names.erase(edit.name);
    }
  }
  unsynced_names_.push_back(std::move(change));
}

void CrashModel::write(std::size_t node, std::int64_t offset, const Content& data) {
  overwrite(nodes_[node].current, offset, data);
  nodes_[node].unsynced.push_back({offset, data});
}

void CrashModel::sync_names(std::size_t directory) {
  // A change that becomes certain takes along all earlier ones of its folders, or an old name could come back later.
  std::set<std::size_t> synced{directory};
  std::vector<bool> certain(unsynced_names_.size(), false);
  for (std::size_t i = unsynced_names_.size(); i-- > 0;) {
    const NameChange& change = unsynced_names_[i];
    certain[i] = std::any_of(synced.begin(), synced.end(), [&](std::size_t one) { return change.touches(one); });
    if (!certain[i]) continue;
    for (const NameEdit& edit : change.edits) synced.insert(edit.directory);
  }
  std::vector<NameChange> rest;
  for (std::size_t i = 0; i < unsynced_names_.size(); ++i) {
    if (!certain[i]) {
      rest.push_back(std::move(unsynced_names_[i]));
      continue;
    }
    for (const NameEdit& edit : unsynced_names_[i].edits) {
      Names& names = nodes_[edit.directory].durable_names;
      if (edit.node) {
        names[edit.name] = *edit.node;
      } else {
        names.erase(edit.name);
      }
    }
  }
  unsynced_names_ = std::move(rest);
}

void CrashModel::apply(const Operation& operation) {
  const Path& path = operation.path;
  switch (operation.verb) {
    case Verb::open:
      if (operation.made) {
        const std::size_t node = add_node(false);
        change_names({node, {{find_parent(path), path.filename().string(), node}}});
      }
      open_files_[operation.file] = find(path);
      break;
    case Verb::close: open_files_.erase(operation.file); break;
    case Verb::write: write(open_files_.at(operation.file), operation.offset, operation.data); break;
    case Verb::append: {
      const std::size_t node = open_files_.at(operation.file);
      write(node, static_cast<std::int64_t>(nodes_[node].current.size()), operation.data);
      break;
    }
    case Verb::sync: {
      Node& node = nodes_[open_files_.at(operation.file)];
      node.durable = node.current;
      node.unsynced.clear();
      break;
    }
    case Verb::sync_directory: sync_names(find(path)); break;
    case Verb::rename: {
      const std::size_t node = find(path);
      change_names({node,
                    {{find_parent(path), path.filename().string(), std::nullopt},
                     {find_parent(operation.to), operation.to.filename().string(), node}}});
      break;
    }
    case Verb::remove: change_names({find(path), {{find_parent(path), path.filename().string(), std::nullopt}}}); break;
    case Verb::make_directory: {
      const std::size_t node = add_node(true);
      change_names({node, {{find_parent(path), path.filename().string(), node}}});
      break;
    }
    case Verb::size:
    case Verb::read:
    case Verb::map:
    case Verb::list:
    case Verb::status:
    case Verb::free_space: break;  // leave no trace
  }
}

std::vector<bool> CrashModel::choose_changes(CrashKind kind, std::uint64_t seed) const {
  std::vector<bool> chosen(unsynced_names_.size(), kind == CrashKind::killed || kind == CrashKind::torn);
  if (kind != CrashKind::reordered) return chosen;
  std::set<std::size_t> needed;  // nodes of which a later change was chosen
  for (std::size_t i = chosen.size(); i-- > 0;) {
    chosen[i] = needed.contains(unsynced_names_[i].node) || keep(seed, "names", i);
    if (chosen[i]) needed.insert(unsynced_names_[i].node);
  }
  return chosen;
}

CrashModel::Content CrashModel::content_after(std::size_t node, CrashKind kind, std::uint64_t seed) const {
  const Node& file = nodes_[node];
  if (kind == CrashKind::killed) return file.current;
  Content content = file.durable;
  if (kind == CrashKind::unsynced_lost) return content;
  for (std::size_t i = 0; i < file.unsynced.size(); ++i) {
    const auto& [offset, data] = file.unsynced[i];
    if (kind == CrashKind::reordered) {
      if (keep(seed, "writes", node, i)) overwrite(content, offset, data);
      continue;
    }
    const std::int64_t end = offset + static_cast<std::int64_t>(data.size());
    for (std::int64_t begin = offset; begin < end;) {
      const std::int64_t sector = begin / kSector;
      const std::int64_t stop = std::min(end, (sector + 1) * kSector);
      const auto piece = std::span(data).subspan(static_cast<std::size_t>(begin - offset), static_cast<std::size_t>(stop - begin));
      if (keep(seed, "sectors", node * 1024 + i, static_cast<std::uint64_t>(sector))) overwrite(content, begin, piece);
      begin = stop;
    }
  }
  // The length is metadata of its own: it may arrive before the data it makes room for.
  if (kind == CrashKind::torn && keep(seed, "length", node)) content.resize(std::max(content.size(), file.current.size()));
  return content;
}

FileTree CrashModel::after_crash(CrashKind kind, std::uint64_t seed) const {
  std::vector<Names> names;
  for (const Node& node : nodes_) names.push_back(node.durable_names);
  const std::vector<bool> chosen = choose_changes(kind, seed);
  for (std::size_t i = 0; i < chosen.size(); ++i) {
    if (!chosen[i]) continue;
    for (const NameEdit& edit : unsynced_names_[i].edits) {
      if (edit.node) {
        names[edit.directory][edit.name] = *edit.node;
      } else {
        names[edit.directory].erase(edit.name);
      }
    }
  }
  FileTree tree;
  const std::function<void(std::size_t, const Path&)> visit = [&](std::size_t directory, const Path& prefix) {
    for (const auto& [name, node] : names[directory]) {
      const Path path = prefix / name;
      if (nodes_[node].directory) {
        tree[path] = std::nullopt;
        visit(node, path);
      } else {
        tree[path] = content_after(node, kind, seed);
      }
    }
  };
  visit(0, {});
  return tree;
}

}  // namespace plimsoll::io
