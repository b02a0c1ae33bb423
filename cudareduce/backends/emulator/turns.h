// Selects the next thread and switches to it. Inlined into every function that waits, since a launch
// spends most of its time here.
#pragma once
#include "block.h"

namespace cudaemu {

inline unsigned lowest_bit(unsigned bits) { return static_cast<unsigned>(__builtin_ctz(bits)); }

inline unsigned highest_bit(unsigned bits) {
  return 31 - static_cast<unsigned>(__builtin_clz(bits));
}

inline unsigned rotate_right(unsigned bits, unsigned by) {
  by %= 32;
  return by == 0 ? bits : bits >> by | bits << (32 - by);
}

// The lowest set bit at or after `start`; if there is none, the lowest set bit.
inline unsigned next_bit(unsigned bits, unsigned start) {
  return (lowest_bit(rotate_right(bits, start)) + start) % 32;
}

inline Fiber &Block::current() const {
  return *static_cast<Fiber *>(const_cast<Thread *>(this_thread));
}

inline void Block::make_ready(unsigned warp, unsigned lanes) {
  warps_[warp].ready |= lanes;
  ready_warps_ |= 1u << warp;
}

inline Fiber *Block::take(unsigned warp, unsigned lane) {
  warps_[warp].ready &= ~(1u << lane);
  if (warps_[warp].ready == 0) ready_warps_ &= ~(1u << warp);
  return &fibers_[warp * WARP + lane];
}

inline Fiber *Block::take_next() {
  if (ready_warps_ == 0) return nullptr;
  if (order_ == Order::Random) {
    current_warp_ = random_bit(ready_warps_);
  } else if ((ready_warps_ >> current_warp_ & 1) == 0) {
    current_warp_ =
        order_ == Order::Warp ? random_bit(ready_warps_) : next_bit(ready_warps_, current_warp_);
  }
  const unsigned ready = warps_[current_warp_].ready;
  return take(current_warp_, order_ == Order::Ascending ? lowest_bit(ready) : random_bit(ready));
}

// A thread that has not started takes an idle stack.
__attribute__((always_inline)) inline Value Block::switch_to(Fiber &next, Context &from) {
  this_thread = &next;
  if (next.context.place == nullptr) next.context.place = idle_stacks_[--idle_].place;
  return switch_context(from, next.context);
}

// Suspends the running thread and continues another one. Returns, once this thread is resumed, the
// value that it receives. The ascending order is inlined and calls no function, so that callers need
// no stack frame and can jump to the switch.
__attribute__((always_inline)) inline Value Block::switch_from(Fiber &fiber) {
  if (order_ != Order::Ascending || ready_warps_ == 0) return switch_or_stop(fiber);
  if ((ready_warps_ >> current_warp_ & 1) == 0) {
    current_warp_ = next_bit(ready_warps_, current_warp_);
  }
  Fiber *next = take(current_warp_, lowest_bit(warps_[current_warp_].ready));
  if (next == &fiber) return fiber.context.result;
  return switch_to(*next, fiber.context);
}

}  // namespace cudaemu
