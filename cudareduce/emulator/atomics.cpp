// Atomic operations and fences on real memory. Under the random schedules an atomic operation is
// also a point at which another thread may come first.
#include <atomic>

#include "hazards.h"

namespace cudaemu {
namespace {

template <class W>
W begin(W *address, Scope scope, const void *return_address) {
  if (running_block->launch().watched) {
    hazards::atomic_accessed(address, sizeof *address, scope, return_address);
  } else {
    running_block->preempt();
  }
  return __atomic_load_n(address, __ATOMIC_RELAXED);
}

template <class W>
W exchange_if_equal(W *address, W expected, W desired) {
  if (running_block->launch().watched && expected != desired) hazards::value_changed();
  __atomic_compare_exchange_n(address, &expected, desired, false, __ATOMIC_RELAXED,
                              __ATOMIC_RELAXED);
  return expected;  // what was found
}

}  // namespace

uint32_t begin_atomic(uint32_t *address, Scope scope) {
  return begin(address, scope, __builtin_return_address(0));
}
uint64_t begin_atomic(uint64_t *address, Scope scope) {
  return begin(address, scope, __builtin_return_address(0));
}

uint32_t compare_and_swap(uint32_t *address, uint32_t expected, uint32_t desired) {
  return exchange_if_equal(address, expected, desired);
}
uint64_t compare_and_swap(uint64_t *address, uint64_t expected, uint64_t desired) {
  return exchange_if_equal(address, expected, desired);
}

void fence(Scope scope) {
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (running_block->launch().watched) hazards::thread_fenced(scope);
}

}  // namespace cudaemu
