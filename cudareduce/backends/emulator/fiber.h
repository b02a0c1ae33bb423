// A fiber: a stack and a saved context. Switching takes a few nanoseconds on x86-64; elsewhere (or with
// CUDAEMU_UCONTEXT) ucontext is about ten times slower.
#pragma once
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>

#include <new>

#include "runtime.h"

#if defined(__x86_64__) && !defined(CUDAEMU_UCONTEXT)
#define CUDAEMU_FAST_SWITCH 1
#else
#include <ucontext.h>
#endif

namespace cudaemu {

// Where a suspended fiber continues, and the result of the call that suspended it.
struct Context {
  void *place;
  Value result;
};

#ifdef CUDAEMU_FAST_SWITCH

// Saves the callee-saved registers on the current stack and loads those of the other fiber. It ends
// with a jump, since the CPU would mispredict a return after every switch. For the same reason the
// functions that wait end with this call, which then compiles to a jump. With this, a shuffle takes
// 17 ns per lane instead of 25.
extern "C" __attribute__((visibility("hidden"))) Value cudaemu_switch_context(Context *from,
                                                                              const Context *to);

inline Value switch_context(Context &from, const Context &to) {
  return cudaemu_switch_context(&from, &to);
}

inline void *start_context(char *stack_top, void (*body)()) {
  constexpr int saved_registers = 6;
  void **top = reinterpret_cast<void **>(stack_top);
  *--top = nullptr;  // the return address of `body`, which never returns; keeps the alignment
  *--top = reinterpret_cast<void *>(body);
  for (int i = 0; i < saved_registers; i++) *--top = nullptr;
  return top;
}

#else

inline Value switch_context(Context &from, const Context &to) {
  ucontext_t here;  // on the suspended stack
  from.place = &here;
  swapcontext(&here, static_cast<const ucontext_t *>(to.place));
  return from.result;
}

inline void *start_context(char *stack_top, void (*body)()) {
  constexpr size_t usable = 48 << 10;
  ucontext_t *start = reinterpret_cast<ucontext_t *>(stack_top) - 1;
  getcontext(start);
  start->uc_stack.ss_sp = stack_top - usable;
  start->uc_stack.ss_size = usable - sizeof *start;
  start->uc_link = nullptr;
  makecontext(start, body, 0);
  return start;
}

#endif

constexpr size_t PAGE = 4096;

// The stacks of one block's threads. Each guard page uses one of the about 65 000 memory mappings that
// a process may have, so not all blocks can have guard pages.
class Stacks {
 public:
  Stacks(unsigned count, bool guarded) : bytes_(count * STRIDE) {
    void *map = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (map == MAP_FAILED) throw std::bad_alloc();
    base_ = static_cast<char *>(map);
    for (unsigned i = 0; guarded && i < count; i++) mprotect(base_ + i * STRIDE, PAGE, PROT_NONE);
  }
  ~Stacks() { munmap(base_, bytes_); }
  Stacks(const Stacks &) = delete;
  Stacks &operator=(const Stacks &) = delete;

  bool contains(const char *address) const {
    return static_cast<size_t>(address - base_) < bytes_;
  }
  size_t number(const char *address) const { return (address - base_) / STRIDE; }
  // Stack tops at equal distances would map to the same few sets of the CPU's caches, so the tops
  // are shifted against each other.
  char *top(unsigned i) const { return base_ + (i + 1) * STRIDE - i * COLOUR % COLOURS; }

 private:
  static constexpr size_t STRIDE = (64 << 10) + PAGE;
  static constexpr size_t COLOUR = 5 * 64;
  static constexpr size_t COLOURS = 2 * PAGE;
  size_t bytes_;
  char *base_;
};

}  // namespace cudaemu
