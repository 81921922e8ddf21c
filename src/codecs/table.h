// The codecs that there are.
#pragma once

#include <span>
#include <string_view>

#include "codecs/codec.h"

namespace plimsoll::codecs {

std::span<const Codec* const> codecs();
// nullptr: there is none.
const Codec* find_codec(std::string_view name);

// With the codec's usual settings.
Choice choice_of(const Codec& codec, Use use);

// The run file's key, "communication.gradients".
std::string_view key_of(Use use);
const Choice& choice_for(const Choices& choices, Use use);
Choice& choice_for(Choices& choices, Use use);

// "int8", or "int8 (error_feedback false)" with what is not usual.
std::string words(const Choice& choice, Use use);

// ---- rows, each in the file of its codec

const Codec& bf16();  // bf16.cpp
// Of any stored form, called like it; that must outlive the codec (forms.cpp).
Codec form_codec(const ops::FormInfo& form, std::string_view about);

}  // namespace plimsoll::codecs
