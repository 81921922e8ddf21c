// An operator: one of a closed set of attribute structs. A new one fails to compile until it has a definition
// (catalogue.cpp) and fails to lower until a backend has a kernel for it.
#pragma once

#include <string>
#include <variant>

#include "ops/activation.h"
#include "ops/attention.h"
#include "ops/collective.h"
#include "ops/dropout.h"
#include "ops/elementwise.h"
#include "ops/embedding.h"
#include "ops/encode.h"
#include "ops/feedback.h"
#include "ops/linear.h"
#include "ops/loss.h"
#include "ops/norm.h"
#include "ops/parts.h"
#include "ops/prelude.h"
#include "ops/quantize.h"
#include "ops/rope.h"
#include "ops/scalars.h"
#include "ops/stateful.h"
#include "ops/update.h"

namespace plimsoll::ops {

using Op = std::variant<Embed, EmbedGrad, Linear, LinearGradInput, LinearGradWeight, BiasGrad, Activation, ActivationGrad, Gate, GateGrad,
                        Add, Cast, Dropout, Residual, Norm, NormGrad, QkNorm, QkNormGrad, Rope, Attention, AttentionGrad, CachedAttention,
                        CrossEntropy, CrossEntropyGrad, HeadLoss, BeginStep, SumLoss, SquaredNorm, PrepareUpdate, FinishStep, Update,
                        MergeScalars, FreshScalars, ShiftIds, CrossEntropyPart, CrossEntropyMerge, Collective, Message, Move, MoveRows,
                        View, Slice, OwnShard, Pad, Accumulate, Quantize, NoteAmax, ScaledLinear, TakeColumns, PutColumns, Encode, Decode,
                        CheckRows, RunningMean, RoundWithError, RepeatRows, LossWeights, ActivationGradGrad, GateGradGrad, NormGradGrad,
                        QkNormGradGrad, AttentionGradGrad, CrossEntropyGradGrad, UpdatePrelude, MergeSums, Orthogonalize, PutPart, TakePart,
                        Subtract, AddError, KeepError, UndoSkipped, SumParts, MergeAttention, MergeAttentionGrad>;

std::string_view name_of(Tier tier);
std::string_view name_of(CollectiveKind kind);
std::string_view name_of(const Op& op);
std::string to_string(const Op& op);  // "linear(bias=true, activation=gelu_tanh)"; defaults left out
Op parse_op(std::string_view text);   // the inverse; bad_input on anything else

}  // namespace plimsoll::ops
