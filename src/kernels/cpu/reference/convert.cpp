// Small float formats are decoded and encoded by their definition (sign, biased exponent, mantissa) and not through
// f32, so that a value is rounded once.
#include "kernels/cpu/reference/convert.h"

#include <cmath>
#include <cstring>
#include <limits>

namespace plimsoll::kernels::cpu::reference {

namespace {

using base::DType;

struct FloatFormat {
  int exponent_bits;
  int mantissa_bits;
  bool infinities;  // false: all exponents are numbers, the one code with all bits set is NaN (e4m3)

  int bias() const { return (1 << (exponent_bits - 1)) - 1; }
  int sign_shift() const { return exponent_bits + mantissa_bits; }
  std::uint32_t nan_code() const {
    return infinities ? ((1u << (exponent_bits + 1)) - 1) << (mantissa_bits - 1) : (1u << sign_shift()) - 1;
  }
  double largest() const {
    const int top = (1 << exponent_bits) - (infinities ? 2 : 1) - bias();
    const double mantissa = infinities ? 2.0 - std::ldexp(1.0, -mantissa_bits) : 2.0 - std::ldexp(2.0, -mantissa_bits);
    return std::ldexp(mantissa, top);
  }
};

FloatFormat format_of(DType dtype) {
  switch (dtype) {
    case DType::bf16: return {8, 7, true};
    case DType::f16: return {5, 10, true};
    case DType::f8e5m2: return {5, 2, true};
    case DType::f8e4m3: return {4, 3, false};
    default: PLIMSOLL_CHECK(false, "{} is not a small float", name_of(dtype));
  }
}

double rounded(double value, const FloatFormat& format) {
  if (!std::isfinite(value)) return std::isinf(value) && !format.infinities ? std::nan("") : value;
  if (value == 0.0) return value;
  const int lowest = 1 - format.bias();
  const int exponent = std::max(std::ilogb(value), lowest);  // below `lowest` the spacing stays that of the subnormals
  const double spacing = std::ldexp(1.0, exponent - format.mantissa_bits);
  const double near = std::nearbyint(value / spacing) * spacing;
  if (std::abs(near) <= format.largest()) return near;
  return format.infinities ? std::copysign(std::numeric_limits<double>::infinity(), value) : std::nan("");
}

std::uint32_t encode(double value, const FloatFormat& format) {
  value = rounded(value, format);
  const std::uint32_t sign = std::signbit(value) ? 1u << format.sign_shift() : 0u;
  if (std::isnan(value)) return sign | format.nan_code();
  if (std::isinf(value)) return sign | ((1u << format.exponent_bits) - 1) << format.mantissa_bits;
  const double magnitude = std::abs(value);
  if (magnitude == 0.0) return sign;
  const int lowest = 1 - format.bias();
  const int exponent = std::max(std::ilogb(magnitude), lowest);
  const auto steps = static_cast<std::uint32_t>(std::ldexp(magnitude, format.mantissa_bits - exponent));
  // A normal number's leading one adds 1 to the biased exponent, which a subnormal lacks.
  return sign | ((static_cast<std::uint32_t>(exponent - lowest) << format.mantissa_bits) + steps);
}

double decode(std::uint32_t code, const FloatFormat& format) {
  const double sign = (code >> format.sign_shift()) != 0 ? -1.0 : 1.0;
  const std::uint32_t magnitude = code & ((1u << format.sign_shift()) - 1);
  const std::uint32_t biased = magnitude >> format.mantissa_bits;
  const std::uint32_t mantissa = magnitude & ((1u << format.mantissa_bits) - 1);
  if (format.infinities && biased == (1u << format.exponent_bits) - 1) {
    return mantissa != 0 ? std::nan("") : sign * std::numeric_limits<double>::infinity();
  }
  if (!format.infinities && magnitude == format.nan_code()) return std::nan("");
  const std::uint32_t leading = biased == 0 ? 0u : 1u << format.mantissa_bits;
  const int exponent = std::max(static_cast<int>(biased), 1) - format.bias() - format.mantissa_bits;
  return sign * std::ldexp(static_cast<double>(leading + mantissa), exponent);
}

// memcpy: a view may lie anywhere.
template <typename T, typename Decode>
void load_as(const void* from, RefTensor& values, Decode&& to_double) {
  for (std::int64_t e = 0; e < values.elements(); ++e) {
    T item;
    std::memcpy(&item, static_cast<const std::byte*>(from) + e * static_cast<std::int64_t>(sizeof(T)), sizeof(T));
    values[e] = to_double(item);
  }
}

template <typename T, typename Encode>
void store_as(const RefTensor& values, void* to, Encode&& from_double) {
  for (std::int64_t e = 0; e < values.elements(); ++e) {
    const T item = from_double(values[e]);
    std::memcpy(static_cast<std::byte*>(to) + e * static_cast<std::int64_t>(sizeof(T)), &item, sizeof(T));
  }
}

// Calls `visit` with a value of the type that holds elements of `dtype` in memory.
template <typename Visit>
void with_storage(DType dtype, Visit&& visit) {
  switch (dtype) {
    case DType::f32: return visit(float{});
    case DType::bf16:
    case DType::f16:
    case DType::u16: return visit(std::uint16_t{});
    case DType::f8e4m3:
    case DType::f8e5m2:
    case DType::u8: return visit(std::uint8_t{});
    case DType::i32: return visit(std::int32_t{});
    case DType::i64: return visit(std::int64_t{});
  }
}

bool is_small_float(DType dtype) { return base::is_float(dtype) && dtype != DType::f32; }

}  // namespace

double rounded(double value, DType dtype) {
  if (dtype == DType::f32) return static_cast<float>(value);
  return is_small_float(dtype) ? rounded(value, format_of(dtype)) : std::nearbyint(value);
}

RefTensor load(const void* from, const base::TensorType& type) {
  RefTensor values(type.shape);
  const DType dtype = type.dtype;
  with_storage(dtype, [&](auto storage) {
    using T = decltype(storage);
    if (is_small_float(dtype)) {
      const FloatFormat format = format_of(dtype);
      load_as<T>(from, values, [&](T item) { return decode(static_cast<std::uint32_t>(item), format); });
    } else {
      load_as<T>(from, values, [](T item) { return static_cast<double>(item); });
    }
  });
  return values;
}

void store(const RefTensor& values, void* to, const base::TensorType& type) {
  const DType dtype = type.dtype;
  PLIMSOLL_CHECK(values.shape == type.shape, "a result of shape {} for {}", to_string(values.shape), to_string(type));
  with_storage(dtype, [&](auto storage) {
    using T = decltype(storage);
    if (is_small_float(dtype)) {
      const FloatFormat format = format_of(dtype);
      store_as<T>(values, to, [&](double value) { return static_cast<T>(encode(value, format)); });
    } else if (dtype == DType::f32) {
      store_as<T>(values, to, [](double value) { return static_cast<T>(value); });
    } else {
      store_as<T>(values, to, [](double value) { return static_cast<T>(std::nearbyint(value)); });
    }
  });
}

namespace {

template <typename Block>
Block block_at(const void* from) {
  Block block;
  std::memcpy(&block, from, sizeof block);
  return block;
}

}  // namespace

RefValue load_value(const void* from, const base::TensorType& type) {
  if (type == ops::step_scalars_type()) return block_at<ops::StepScalars>(from);
  if (type == ops::parameter_sums_type()) return block_at<ops::ParameterSums>(from);
  return load(from, type);
}

void store_value(const RefValue& value, void* to, const base::TensorType& type) {
  const auto put = [&](const auto& block, const base::TensorType& own) {
    PLIMSOLL_CHECK(type == own, "a block of {} written to {}", to_string(own), to_string(type));
    std::memcpy(to, &block, sizeof block);
  };
  struct Store {
    const decltype(put)& block;
    void* to;
    const base::TensorType& type;
    void operator()(const RefTensor& values) const { store(values, to, type); }
    void operator()(const ops::StepScalars& scalars) const { block(scalars, ops::step_scalars_type()); }
    void operator()(const ops::ParameterSums& sums) const { block(sums, ops::parameter_sums_type()); }
  };
  std::visit(Store{put, to, type}, value);
}

}  // namespace plimsoll::kernels::cpu::reference
