// Cases for std::visit, one for each type: a type without a case does not compile.
#pragma once

namespace plimsoll::base {

template <typename... Cases>
struct Overloads : Cases... {
  using Cases::operator()...;
};
template <typename... Cases>
Overloads(Cases...) -> Overloads<Cases...>;

// The last case where the other types do not matter.
struct IgnoreOthers {
  template <typename... Others>
  void operator()(const Others&...) const {}
};
inline constexpr IgnoreOthers kIgnoreOthers;

}  // namespace plimsoll::base
