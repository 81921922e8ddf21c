// Lines are read one after the other; names are looked up when all are known, since a value may point at one that comes later.
#include <algorithm>
#include <charconv>
#include <functional>
#include <map>

#include <fmt/ranges.h>

#include "base/error.h"
#include "graph/text.h"
#include "graph/text_fields.h"
#include "ops/step_scalars.h"

namespace plimsoll::graph {

namespace {

using ops::fields_from;
using ops::named_list;

// A name as it was written, with the number behind it if there is one.
struct Reference {
  std::string name;
  std::optional<std::uint32_t> number{};
  bool nobody = false;
};

// "key=value", "word(list)" or "word".
struct Item {
  std::string_view key;
  std::string_view value{};

  std::string_view word() const { return key.substr(0, key.find('(')); }
};

// What is left of a line.
class Cursor {
 public:
  explicit Cursor(std::string_view text) : rest_(text) {}

  bool at_end() {
    skip_spaces();
    return rest_.empty();
  }

  bool take(std::string_view word) {
    skip_spaces();
    if (!rest_.starts_with(word)) return false;
    rest_.remove_prefix(word.size());
    return true;
  }

  void expect(std::string_view word) {
    if (!take(word)) refuse(fmt::format("\"{}\"", word));
  }

  void expect_end() {
    if (!at_end()) refuse("the end of the line");
  }

  // Letters as they come in names without quotes; may be empty.
  std::string_view plain_word() {
    skip_spaces();
    return cut(std::min(rest_.find_first_not_of(kPlainLetters), rest_.size()));
  }

  Reference reference() {
    Reference found{.name = name()};
    if (found.name.empty()) refuse("a name");
    found.nobody = found.name == kNobody && !quoted_;
    if (!rest_.starts_with('%')) return found;
    rest_.remove_prefix(1);
    std::uint32_t number = 0;
    const auto [end, error] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), number);
    if (error != std::errc{}) refuse("a number");
    found.number = number;
    cut(static_cast<std::size_t>(end - rest_.data()));
    return found;
  }

  std::vector<Reference> references() {
    std::vector<Reference> found{reference()};
    while (take(",")) found.push_back(reference());
    return found;
  }

  // f32[2, 4]
  TensorType type() {
    const std::string_view word = plain_word();
    if (word == kStepScalars) return ops::step_scalars_type();
    const std::optional<base::DType> dtype = base::dtype_from_name(word);
    if (!dtype) base::bad_input("found \"{}\"; expected a type, as f32[2, 4]", word.empty() ? rest_ : word);
    expect("[");
    const std::size_t end = rest_.find(']');
    if (end == std::string_view::npos) refuse("\"]\"");
    std::string extents(cut(end));
    rest_.remove_prefix(1);
    std::erase(extents, ' ');
    std::replace(extents.begin(), extents.end(), ',', ':');
    TensorType type{.dtype = *dtype, .shape = {}};
    ops::parse_into(extents, type.shape);
    return type;
  }

  // linear(bias=true)
  ops::Op op() {
    skip_spaces();
    const std::size_t word = std::min(rest_.find_first_of(" ("), rest_.size());
    const bool has_list = word < rest_.size() && rest_[word] == '(';
    return ops::parse_op(cut(has_list ? std::min(rest_.find(')'), rest_.size() - 1) + 1 : word));
  }

  // {a, b=c, d=(e, f)}; none where there are no braces.
  std::vector<Item> items() {
    std::vector<Item> found;
    if (!take("{")) return found;
    while (!take("}")) {
      if (!found.empty()) expect(",");
      skip_spaces();
      const std::size_t end = end_of_item();
      const std::string_view item = cut(end);
      const std::size_t equals = item.substr(0, item.find('(')).find('=');
      found.push_back(equals == std::string_view::npos ? Item{item} : Item{item.substr(0, equals), item.substr(equals + 1)});
    }
    return found;
  }

  // Whether a type comes next, a comma or the end: then what came before was a result's name, not the word that begins a line.
  bool names_result() const {
    Cursor ahead(rest_);
    if (ahead.at_end() || ahead.rest_.starts_with(',') || ahead.rest_.starts_with('=') || ahead.rest_.starts_with('%')) return true;
    const std::string_view word = ahead.plain_word();
    return word == kStepScalars || (base::dtype_from_name(word).has_value() && ahead.rest_.starts_with('['));
  }

  [[noreturn]] void refuse(std::string_view expected) const {
    if (rest_.empty()) base::bad_input("the line ends; expected {}", expected);
    base::bad_input("found \"{}\"; expected {}", rest_, expected);
  }

 private:
  void skip_spaces() { rest_.remove_prefix(std::min(rest_.find_first_not_of(' '), rest_.size())); }

  std::string_view cut(std::size_t count) {
    const std::string_view first = rest_.substr(0, count);
    rest_.remove_prefix(first.size());
    return first;
  }

  std::string name() {
    quoted_ = take("\"");
    if (!quoted_) return std::string(plain_word());
    std::string name;
    while (!rest_.starts_with('"')) {
      const bool escaped = rest_.starts_with('\\');
      if (escaped) rest_.remove_prefix(1);
      if (rest_.empty()) refuse("a closing quote");
      const char letter = cut(1).front();
      name += escaped && letter == 'n' ? '\n' : letter;
    }
    rest_.remove_prefix(1);
    return name;
  }

  // Up to a comma or brace that stands in neither parentheses, brackets nor quotes.
  std::size_t end_of_item() const {
    int depth = 0;
    bool in_quotes = false;
    for (std::size_t index = 0; index < rest_.size(); ++index) {
      const char letter = rest_[index];
      if (in_quotes && letter == '\\') {
        ++index;
      } else if (letter == '"') {
        in_quotes = !in_quotes;
      } else if (!in_quotes && (letter == '(' || letter == '[')) {
        ++depth;
      } else if (!in_quotes && (letter == ')' || letter == ']')) {
        --depth;
      } else if (!in_quotes && depth == 0 && (letter == ',' || letter == '}')) {
        return index;
      }
    }
    refuse("a closing brace");
  }

  std::string_view rest_;
  bool quoted_ = false;  // the name that was read last
};

// The value of a type that names its values.
template <typename Enum>
std::optional<Enum> find_named(std::string_view word, int count) {
  for (int index = 0; index < count; ++index) {
    if (name_of(static_cast<Enum>(index)) == word) return static_cast<Enum>(index);
  }
  return std::nullopt;
}

template <typename Enum>
Enum named(std::string_view word, int count) {
  if (const std::optional<Enum> found = find_named<Enum>(word, count)) return *found;
  std::vector<std::string_view> names;
  for (int index = 0; index < count; ++index) names.push_back(name_of(static_cast<Enum>(index)));
  base::bad_input("found \"{}\"; expected one of: {}", word, fmt::join(names, ", "));
}

class Reader {
 public:
  explicit Reader(std::string_view name) : name_(name) {}

  Graph run(std::string_view text) {
    while (!text.empty()) {
      ++line_;
      const std::size_t end = std::min(text.find('\n'), text.size());
      with_place([&] { read(text.substr(0, end)); });
      text.remove_prefix(std::min(end + 1, text.size()));
    }
    require_all();
    for (const auto& [line, look_up] : later_) {
      line_ = line;
      with_place(look_up);
    }
    return std::move(graph_);
  }

 private:
  template <typename Work>
  void with_place(const Work& work) {
    try {
      work();
    } catch (const base::Error& error) {
      base::bad_input("{}:{}: {}", name_, line_, error.what());
    }
  }

  // Done when all names are known.
  void afterwards(std::function<void()> look_up) { later_.emplace_back(line_, std::move(look_up)); }

  void read(std::string_view text) {
    Cursor line(text);
    if (line.at_end()) return;
    Cursor ahead = line;
    const std::string_view word = ahead.plain_word();
    if (word.empty() || ahead.names_result()) return read_node(line);
    line = ahead;
    if (line.take(":")) return read_pointers(word, line);
    if (word == kBlockWord) return read_block(line);
    if (word == kTrainedWord || word == kFrozenWord) return read_parameter(line, word == kFrozenWord);
    if (const std::optional<Role> role = find_named<Role>(word, kRoles)) return read_root(line, *role);
    if (const std::optional<Phase> phase = find_named<Phase>(word, kPhases)) return read_heading(line, *phase);
    base::bad_input("found \"{}\"; expected a block, a phase, a role, a result with its type, or one of {}, {}, {}, {} and {}", word,
                    kTrainedWord, kFrozenWord, kResultsWord, kScalarsWord, kPendingWord);
  }

  void read_block(Cursor& line) {
    const Reference name = line.reference();
    Block block{.name = name.name};
    for (const Item& item : line.items()) {
      if (item.key == "kind") {
        block.kind = named<BlockKind>(item.value, kBlockKinds);
        continue;
      }
      if (item.key != "stage") unknown(item);
      ops::parse_into(item.value, block.stage);
    }
    line.expect_end();
    if (name.number && *name.number != graph_.blocks.size())
      base::bad_input("block {} has the number {}; expected {}, as they come", name.name, *name.number, graph_.blocks.size());
    graph_.blocks.add(block);
  }

  void read_heading(Cursor& line, Phase phase) {
    block_ = block_of(line.reference());
    line.expect(":");
    line.expect_end();
    phase_ = phase;
    headed_ = true;
  }

  void read_root(Cursor& line, Role role) {
    const ValueId id = read_value(line);
    values_[id.index].role = role;
    line.expect_end();
  }

  void read_node(Cursor& line) {
    if (!headed_) base::bad_input("a node before the first heading; expected its phase and its block, as \"forward first:\"");
    Node node{.op = {}, .block = block_, .phase = phase_};
    const NodeId id = graph_.nodes.next_id();
    while (!line.take("=")) {
      if (!node.outputs.empty()) line.expect(",");
      if (Cursor ahead = line; ahead.reference().nobody) {
        line = ahead;
        node.outputs.emplace_back();
        continue;
      }
      node.outputs.push_back(read_value(line));
      values_[node.outputs.back().index].producer = id;
    }
    node.op = line.op();
    const std::vector<Reference> inputs = line.take("<-") ? line.references() : std::vector<Reference>{};
    for (const Item& item : line.items()) {
      if (item.key == "ahead") {
        node.ahead = true;
      } else if (item.key == "turn") {
        node.turn = named<Turn>(item.value, kTurns);
      } else {
        unknown(item);
      }
    }
    line.expect_end();
    graph_.nodes.add(std::move(node));
    afterwards([this, id, inputs] {
      for (const Reference& input : inputs) graph_.nodes[id].inputs.push_back(value_of(input));
    });
  }

  // NAME TYPE {..}
  ValueId read_value(Cursor& line) {
    const Reference name = line.reference();
    if (name.nobody) base::bad_input("a root without a name; expected one (\"_\" stands in quotes where it is one)");
    const ValueId id{name.number.value_or(next_)};
    Value value{.name = name.name, .type = line.type(), .block = block_};
    for (const Item& item : line.items()) read_item(item, id, value);
    if (!values_.emplace(id.index, std::move(value)).second) base::bad_input("a second value has the number {}", id.index);
    while (values_.contains(next_)) ++next_;
    called_[name.name].push_back(id);
    return id;
  }

  void read_item(const Item& item, ValueId id, Value& value) {
    const auto list = [&] { return named_list(item.key == item.word() ? item.value : item.key); };
    if (item.key == "of") {
      value.block = block_of(reference_in(item.value));
    } else if (item.key == "init") {
      value.init = fields_from<Init>(list(), kInitFields);
      value.init.kind = named<Init::Kind>(list().name, Init::kKinds);
    } else if (item.key == "deal") {
      value.deal = fields_from<ops::Placement>(list(), kDealFields);
      value.deal.spread = named<ops::Spread>(list().name, ops::kSpreads);
    } else if (item.word() == "state") {
      value.state = fields_from<ops::State>(list(), kStateFields);
    } else if (item.word() == "part") {
      value.part = fields_from<ops::Part>(list(), kPartFields);
    } else if (item.word() == "live") {
      value.live = fields_from<Live>(list(), kLiveFields);
    } else if (item.key == "tier") {
      ops::parse_into(item.value, value.tier);
    } else if (item.key == "all_micro_batches") {
      value.all_micro_batches = true;
    } else if (item.key == "begins_gradient") {
      value.begins_gradient = true;
    } else if (item.key == "count") {
      afterwards([this, id, wanted = reference_in(item.value)] { graph_.values[id].live.count = value_of(wanted); });
    } else if (item.key == "in_memory_of") {
      afterwards([this, id, wanted = reference_in(item.value)] { graph_.values[id].in_memory_of = value_of(wanted); });
    } else {
      unknown(item);
    }
  }

  void read_parameter(Cursor& line, bool frozen) {
    const std::string name = line.reference().name;
    const std::size_t index = graph_.parameters.size();
    graph_.parameters.push_back({.name = name, .frozen = frozen});
    Parameter& parameter = graph_.parameters.back();
    Reference weight{.name = name};
    std::optional<Reference> master;
    std::vector<Reference> states;
    Reference gradient{.name = {}, .nobody = true};
    Stored stored;
    for (const Item& item : line.items()) {
      if (item.key == "weight") {
        weight = reference_in(item.value);
      } else if (item.key == "master") {
        master = reference_in(item.value);
      } else if (item.key == "states") {
        Cursor inner(item.value);
        inner.expect("(");
        states = inner.references();
        inner.expect(")");
      } else if (item.key == "gradient") {
        gradient = reference_in(item.value);
      } else if (item.key == "gradient_leaves") {
        parameter.gradient_leaves = true;
      } else if (item.key == "rows_of_table") {
        parameter.rows_of_table = true;
      } else if (item.key == "matrix") {
        parameter.matrix.emplace();
        if (!item.value.empty()) ops::parse_into(item.value, *parameter.matrix);
      } else if (item.key == "sums_over") {
        ops::parse_into(item.value, parameter.sums_over.emplace());
      } else if (item.key == "form") {
        ops::parse_into(item.value, stored.form);
        parameter.stored = stored;
      } else if (item.key == "decoded") {
        if (!parameter.stored) base::bad_input("\"decoded\" without a form before it; expected form=NAME");
        Cursor inner(item.value);
        parameter.stored->decoded = inner.type();
      } else {
        unknown(item);
      }
    }
    line.expect_end();
    afterwards([this, index, weight, master, states, gradient] {
      Parameter& found = graph_.parameters[index];
      found.weight = value_of(weight);
      found.master = master ? value_of(*master) : found.weight;
      for (const Reference& state : states) found.states.push_back(value_of(state));
      found.gradient = value_of(gradient);
    });
  }

  // results: a, b
  void read_pointers(std::string_view word, Cursor& line) {
    const std::vector<Reference> wanted = line.references();
    line.expect_end();
    if (word == kResultsWord) {
      afterwards([this, wanted] {
        for (const Reference& each : wanted) graph_.results.push_back(value_of(each));
      });
      return;
    }
    if (word != kScalarsWord && word != kPendingWord)
      base::bad_input("found \"{}:\"; expected {}, {} or {}", word, kResultsWord, kScalarsWord, kPendingWord);
    if (wanted.size() > 1) base::bad_input("{} values are {}; expected one", wanted.size(), word);
    ValueId Graph::* const where = word == kScalarsWord ? &Graph::scalars : &Graph::pending;
    afterwards([this, where, only = wanted.front()] { graph_.*where = value_of(only); });
  }

  // ---- names

  static Reference reference_in(std::string_view text) {
    Cursor cursor(text);
    const Reference found = cursor.reference();
    cursor.expect_end();
    return found;
  }

  BlockId block_of(const Reference& wanted) const {
    if (wanted.nobody) return {};
    std::vector<BlockId> found;
    for (std::uint32_t index = 0; index < graph_.blocks.size(); ++index) {
      if (graph_.blocks[BlockId{index}].name == wanted.name) found.push_back(BlockId{index});
    }
    return chosen("block", wanted, found);
  }

  ValueId value_of(const Reference& wanted) const {
    if (wanted.nobody) return {};
    const auto found = called_.find(wanted.name);
    return chosen("value", wanted, found == called_.end() ? std::vector<ValueId>{} : found->second);
  }

  template <typename IdType>
  static IdType chosen(std::string_view what, const Reference& wanted, const std::vector<IdType>& called) {
    if (called.empty()) base::bad_input("there is no {} {}", what, wanted.name);
    if (wanted.number) {
      const IdType id{*wanted.number};
      if (std::find(called.begin(), called.end(), id) == called.end())
        base::bad_input("{} {} is not called {}", what, id.index, wanted.name);
      return id;
    }
    if (called.size() > 1)
      base::bad_input("{} {}s are called {}; expected a number behind the name, as {}%{}", called.size(), what, wanted.name, wanted.name,
                      called.front().index);
    return called.front();
  }

  // Numbers leave no gap.
  void require_all() {
    for (auto& [index, value] : values_) {
      if (index != graph_.values.size())
        with_place([&] { base::bad_input("no value has the number {}, but one has {}", graph_.values.size(), index); });
      graph_.add_value(std::move(value));
    }
  }

  [[noreturn]] static void unknown(const Item& item) { base::bad_input("\"{}\" says nothing here", item.key); }

  std::string_view name_;
  std::size_t line_ = 0;
  Graph graph_;
  std::map<std::uint32_t, Value> values_;
  std::uint32_t next_ = 0;                                           // the smallest number that is free
  std::map<std::string, std::vector<ValueId>, std::less<>> called_;  // values by name
  bool headed_ = false;
  BlockId block_;  // of the heading
  Phase phase_ = Phase::begin;
  std::vector<std::pair<std::size_t, std::function<void()>>> later_;  // with the line
};

}  // namespace

Graph parse_graph(std::string_view text, std::string_view name) { return Reader(name).run(text); }

}  // namespace plimsoll::graph
