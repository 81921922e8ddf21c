// Every operator in double, one overload each, as the headers in ops define it: the oracle of the operator tests and the
// fallback where no fast kernel takes a query. These allocate, which other kernels may not: a plan that uses one is
// correct and slow, and says so by the kernel's name.
#pragma once

#include "kernels/cpu/reference/tensor.h"
#include "ops/op.h"

namespace plimsoll::kernels::cpu::reference {

// The results of the operator; nothing is rounded to an element type.
Results evaluate(const ops::Op& op, Operands operands);

// embedding.cpp
Results compute(const ops::Embed& op, Operands operands);
Results compute(const ops::EmbedGrad& op, Operands operands);
Results compute(const ops::ShiftIds& op, Operands operands);
// linear.cpp
Results compute(const ops::Linear& op, Operands operands);
Results compute(const ops::LinearGradInput& op, Operands operands);
Results compute(const ops::LinearGradWeight& op, Operands operands);
Results compute(const ops::BiasGrad& op, Operands operands);
Results compute(const ops::RepeatRows& op, Operands operands);
// quantize.cpp
Results compute(const ops::Quantize& op, Operands operands);
Results compute(const ops::NoteAmax& op, Operands operands);
Results compute(const ops::ScaledLinear& op, Operands operands);
// encode.cpp
Results compute(const ops::Encode& op, Operands operands);
Results compute(const ops::Decode& op, Operands operands);
// feedback.cpp
Results compute(const ops::AddError& op, Operands operands);
Results compute(const ops::KeepError& op, Operands operands);
Results compute(const ops::UndoSkipped& op, Operands operands);
Results compute(const ops::SumParts& op, Operands operands);
// stateful.cpp
Results compute(const ops::RunningMean& op, Operands operands);
Results compute(const ops::RoundWithError& op, Operands operands);
// elementwise.cpp
Results compute(const ops::Activation& op, Operands operands);
Results compute(const ops::ActivationGrad& op, Operands operands);
Results compute(const ops::Gate& op, Operands operands);
Results compute(const ops::GateGrad& op, Operands operands);
Results compute(const ops::ActivationGradGrad& op, Operands operands);
Results compute(const ops::GateGradGrad& op, Operands operands);
Results compute(const ops::Add& op, Operands operands);
Results compute(const ops::Cast& op, Operands operands);
Results compute(const ops::TakeColumns& op, Operands operands);
Results compute(const ops::PutColumns& op, Operands operands);
Results compute(const ops::PutPart& op, Operands operands);
Results compute(const ops::TakePart& op, Operands operands);
Results compute(const ops::Pad& op, Operands operands);
Results compute(const ops::Accumulate& op, Operands operands);
// dropout.cpp
Results compute(const ops::Dropout& op, Operands operands);
Results compute(const ops::Residual& op, Operands operands);
Results compute(const ops::Subtract& op, Operands operands);
// norm.cpp
Results compute(const ops::Norm& op, Operands operands);
Results compute(const ops::NormGrad& op, Operands operands);
Results compute(const ops::NormGradGrad& op, Operands operands);
Results compute(const ops::QkNorm& op, Operands operands);
Results compute(const ops::QkNormGrad& op, Operands operands);
Results compute(const ops::QkNormGradGrad& op, Operands operands);
// rope.cpp
Results compute(const ops::Rope& op, Operands operands);
// attention.cpp
Results compute(const ops::Attention& op, Operands operands);
Results compute(const ops::AttentionGrad& op, Operands operands);
Results compute(const ops::AttentionGradGrad& op, Operands operands);
Results compute(const ops::MergeAttention& op, Operands operands);
Results compute(const ops::MergeAttentionGrad& op, Operands operands);
// cached_attention.cpp
Results compute(const ops::CachedAttention& op, Operands operands);
// loss.cpp
Results compute(const ops::CrossEntropy& op, Operands operands);
Results compute(const ops::CrossEntropyGrad& op, Operands operands);
Results compute(const ops::CrossEntropyGradGrad& op, Operands operands);
Results compute(const ops::LossWeights& op, Operands operands);
Results compute(const ops::HeadLoss& op, Operands operands);
Results compute(const ops::CrossEntropyPart& op, Operands operands);
Results compute(const ops::CrossEntropyMerge& op, Operands operands);
// scalars.cpp
Results compute(const ops::BeginStep& op, Operands operands);
Results compute(const ops::SumLoss& op, Operands operands);
Results compute(const ops::SquaredNorm& op, Operands operands);
Results compute(const ops::PrepareUpdate& op, Operands operands);
Results compute(const ops::FinishStep& op, Operands operands);
Results compute(const ops::MergeScalars& op, Operands operands);
Results compute(const ops::FreshScalars& op, Operands operands);
Results compute(const ops::CheckRows& op, Operands operands);
// optimizer.cpp
Results compute(const ops::UpdatePrelude& op, Operands operands);
Results compute(const ops::MergeSums& op, Operands operands);
Results compute(const ops::Orthogonalize& op, Operands operands);
Results compute(const ops::Update& op, Operands operands);
// kernels.cpp: these are not computed by a kernel
Results compute(const ops::View& op, Operands operands);
Results compute(const ops::Slice& op, Operands operands);
Results compute(const ops::OwnShard& op, Operands operands);
Results compute(const ops::Collective& op, Operands operands);
Results compute(const ops::Message& op, Operands operands);
Results compute(const ops::Move& op, Operands operands);
Results compute(const ops::MoveRows& op, Operands operands);

}  // namespace plimsoll::kernels::cpu::reference
