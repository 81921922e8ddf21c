// The ordered table of a backend's kernels, and the choice among them: for each operator the fastest first; the first that does not
// refuse is taken. A Kernel has op, name, refusal and workspace (kernels/cpu/kernel.h, kernels/cuda/kernel.h).
#pragma once

#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include <fmt/format.h>

#include "base/error.h"
#include "ops/kernel_choice.h"

namespace plimsoll::ops {

template <typename Kernel>
class KernelTable {
 public:
  using Family = std::span<const Kernel> (*)();

  // `refuse_bounded`: why a kernel does not take queries with bounded rows; nullopt = it does.
  using RefuseBounded = std::optional<std::string> (*)(const Kernel& kernel);

  KernelTable(std::string_view backend, RefuseBounded refuse_bounded, std::initializer_list<Family> families)
      : backend_(backend), refuse_bounded_(refuse_bounded) {
    for (Family family : families) {
      const std::span<const Kernel> rows = family();
      all_.insert(all_.end(), rows.begin(), rows.end());
    }
    for (const Kernel& kernel : all_) {
      const bool fresh = by_name_.emplace(kernel.name, &kernel).second;
      PLIMSOLL_CHECK(fresh, "two {} kernels are called {}", backend_, kernel.name);
    }
  }
  KernelTable(const KernelTable&) = delete;
  KernelTable& operator=(const KernelTable&) = delete;

  const std::vector<Kernel>& all() const { return all_; }

  const Kernel& named(std::string_view name) const {
    const auto found = by_name_.find(name);
    PLIMSOLL_CHECK(found != by_name_.end(), "there is no {} kernel {}", backend_, name);
    return *found->second;
  }

  KernelChoice choose(const KernelQuery& query) const {
    std::string reasons;
    const std::string_view op = name_of(query.op);
    for (const Kernel& kernel : all_) {
      if (kernel.op != op) continue;
      std::optional<std::string> refusal = kernel.refusal ? kernel.refusal(query) : std::nullopt;
      if (!refusal && query.bounded) refusal = refuse_bounded_(kernel);
      if (!refusal) return {std::string(kernel.name), kernel.workspace ? kernel.workspace(query) : 0};
      reasons += fmt::format("; {}: {}", kernel.name, *refusal);
    }
    base::not_legal("[{}] no {} kernel takes {}{}", op, backend_, to_string(query.op), reasons);
  }

 private:
  std::string_view backend_;  // "CPU"
  RefuseBounded refuse_bounded_;
  std::vector<Kernel> all_;
  std::unordered_map<std::string_view, const Kernel*> by_name_;
};

}  // namespace plimsoll::ops
