#include <map>

#include <fmt/ranges.h>

#include "graph/text.h"
#include "graph/text_fields.h"
#include "ops/step_scalars.h"

namespace plimsoll::graph {

namespace {

using ops::with_fields;

// What a line says beside the most usual: " {a, b=c}".
std::string in_braces(const std::vector<std::string>& items) { return items.empty() ? "" : fmt::format(" {{{}}}", fmt::join(items, ", ")); }

std::string quoted(std::string_view name) {
  const bool plain = !name.empty() && name.find_first_not_of(kPlainLetters) == std::string_view::npos;
  if (plain && name != kNobody && name != kStepScalars) return std::string(name);
  std::string text = "\"";
  for (const char letter : name) {
    if (letter == '"' || letter == '\\') text += '\\';
    text += letter == '\n' ? "\\n" : std::string(1, letter);
  }
  return text + '"';
}

std::string text_of(const TensorType& type) { return type == ops::step_scalars_type() ? std::string(kStepScalars) : base::to_string(type); }

// How often each name is there.
template <typename Items>
std::map<std::string_view, int> counts_of(const Items& items) {
  std::map<std::string_view, int> counts;
  for (const auto& item : items) ++counts[item.name];
  return counts;
}

class Printer {
 public:
  explicit Printer(const Graph& graph)
      : graph_(graph),
        values_called_(counts_of(graph.values)),
        blocks_called_(counts_of(graph.blocks)),
        printed_(graph.values.size(), false) {}

  std::string run() {
    for (std::uint32_t index = 0; index < graph_.blocks.size(); ++index) print_block(BlockId{index});
    for (const Node& node : graph_.nodes) print(node);
    while (next_ < printed_.size()) print_root(ValueId{next_});
    if (!graph_.parameters.empty() || !graph_.results.empty() || graph_.scalars.valid() || graph_.pending.valid()) text_ += "\n";
    for (const Parameter& parameter : graph_.parameters) print(parameter);
    if (!graph_.results.empty()) line("{}: {}", kResultsWord, list(graph_.results));
    if (graph_.scalars.valid()) line("{}: {}", kScalarsWord, reference(graph_.scalars));
    if (graph_.pending.valid()) line("{}: {}", kPendingWord, reference(graph_.pending));
    return std::move(text_);
  }

 private:
  template <typename... Args>
  void line(fmt::format_string<Args...> format, Args&&... args) {
    text_ += fmt::format(format, std::forward<Args>(args)...) + "\n";
  }

  std::string reference(ValueId id) const {
    if (!id.valid()) return std::string(kNobody);
    const std::string& name = graph_.values[id].name;
    return values_called_.at(name) == 1 ? quoted(name) : fmt::format("{}%{}", quoted(name), id.index);
  }

  std::string reference(BlockId id) const {
    if (!id.valid()) return std::string(kNobody);
    const std::string& name = graph_.blocks[id].name;
    return blocks_called_.at(name) == 1 ? quoted(name) : fmt::format("{}%{}", quoted(name), id.index);
  }

  std::string list(const std::vector<ValueId>& ids) const {
    std::vector<std::string> names;
    for (const ValueId id : ids) names.push_back(reference(id));
    return fmt::format("{}", fmt::join(names, ", "));
  }

  void print_block(BlockId id) {
    const Block& block = graph_.blocks[id];
    line("{} {}{}", kBlockWord, reference(id), block.stage == 0 ? "" : fmt::format(" {{stage={}}}", block.stage));
  }

  // NAME TYPE {..}, where the value gets its number.
  std::string declaration(ValueId id) {
    const Value& value = graph_.values[id];
    std::string name = reference(id);
    if (id.index != next_ && values_called_.at(value.name) == 1) name += fmt::format("%{}", id.index);
    printed_[id.index] = true;
    while (next_ < printed_.size() && printed_[next_]) ++next_;
    std::vector<std::string> items;
    if (value.block != block_) items.push_back("of=" + reference(value.block));
    if (value.init != Init{}) items.push_back("init=" + with_fields(name_of(value.init.kind), value.init, kInitFields));
    if (value.deal != ops::Placement{}) items.push_back("deal=" + with_fields(name_of(value.deal.spread), value.deal, kDealFields));
    if (value.state != ops::State{}) items.push_back(with_fields("state", value.state, kStateFields));
    if (value.part != ops::Part{}) items.push_back(with_fields("part", value.part, kPartFields));
    if (value.tier != ops::Tier::device) items.push_back(fmt::format("tier={}", ops::name_of(value.tier)));
    if (value.all_micro_batches) items.emplace_back("all_micro_batches");
    if (value.begins_gradient) items.emplace_back("begins_gradient");
    if (value.live.count.valid()) items.push_back("count=" + reference(value.live.count));
    if (const Live live{{}, value.live.bound, value.live.expected}; live != Live{}) items.push_back(with_fields("live", live, kLiveFields));
    if (value.in_memory_of.valid()) items.push_back("in_memory_of=" + reference(value.in_memory_of));
    return fmt::format("{} {}{}", name, text_of(value.type), in_braces(items));
  }

  void print_root(ValueId id) { line("  {} {}", name_of(graph_.values[id].role), declaration(id)); }

  // All that are left before the value, where they are no results of nodes to come: then it has its turn.
  void print_roots_before(std::uint32_t value) {
    std::uint32_t first_made = next_;
    while (first_made < value && (printed_[first_made] || !is_made(ValueId{first_made}))) ++first_made;
    if (first_made != value) return;
    while (next_ < value) print_root(ValueId{next_});
  }

  bool is_made(ValueId id) const { return graph_.values[id].role == Role::computed && graph_.values[id].producer.valid(); }

  void print(const Node& node) {
    if (!headed_ || node.block != block_ || node.phase != phase_) {
      headed_ = true;
      block_ = node.block;
      phase_ = node.phase;
      line("\n{} {}:", name_of(phase_), reference(block_));
    }
    if (!node.outputs.empty() && node.outputs.front().valid()) print_roots_before(node.outputs.front().index);
    for (const ValueId id : node.inputs) {
      if (id.valid() && !is_made(id) && !printed_[id.index]) print_root(id);
    }
    std::vector<std::string> results;
    for (const ValueId id : node.outputs) results.push_back(id.valid() ? declaration(id) : std::string(kNobody));
    std::vector<std::string> items;
    if (node.turn != Turn::each) items.push_back(fmt::format("turn={}", name_of(node.turn)));
    if (node.ahead) items.emplace_back("ahead");
    line("  {}{}= {}{}{}{}", fmt::join(results, ", "), results.empty() ? "" : " ", ops::to_string(node.op),
         node.inputs.empty() ? "" : " <- ", list(node.inputs), in_braces(items));
  }

  void print(const Parameter& parameter) {
    std::vector<std::string> items;
    const auto point = [&](std::string_view what, ValueId id) { items.push_back(fmt::format("{}={}", what, reference(id))); };
    const bool by_name =
        parameter.weight.valid() && graph_.values[parameter.weight].name == parameter.name && values_called_.at(parameter.name) == 1;
    if (!by_name) point("weight", parameter.weight);
    if (parameter.master != parameter.weight) point("master", parameter.master);
    if (!parameter.states.empty()) items.push_back(fmt::format("states=({})", list(parameter.states)));
    if (parameter.gradient.valid()) point("gradient", parameter.gradient);
    if (parameter.gradient_leaves) items.emplace_back("gradient_leaves");
    if (parameter.rows_of_table) items.emplace_back("rows_of_table");
    if (parameter.matrix)
      items.push_back(parameter.matrix->rank() == 0 ? "matrix" : fmt::format("matrix={}", ops::text_of(*parameter.matrix)));
    if (parameter.sums_over) items.push_back(fmt::format("sums_over={}", ops::text_of(*parameter.sums_over)));
    if (parameter.stored) {
      items.push_back(fmt::format("form={}", parameter.stored->form->name));
      items.push_back(fmt::format("decoded={}", text_of(parameter.stored->decoded)));
    }
    line("{} {}{}", parameter.frozen ? kFrozenWord : kTrainedWord, quoted(parameter.name), in_braces(items));
  }

  const Graph& graph_;
  const std::map<std::string_view, int> values_called_;
  const std::map<std::string_view, int> blocks_called_;
  std::vector<bool> printed_;  // by value
  std::uint32_t next_ = 0;     // the smallest number of a value that is not
  bool headed_ = false;
  BlockId block_;  // of the heading
  Phase phase_ = Phase::begin;
  std::string text_;
};

}  // namespace

std::string to_string(const Graph& graph) { return Printer(graph).run(); }

}  // namespace plimsoll::graph
