// Atomic operations and fences on real memory. Under the random schedules an atomic operation is
// also a point at which another thread may come first.
#include <atomic>

#include "diagnostics.h"
#include "hazards.h"
#include "traffic.h"

namespace cudaemu {
namespace {

template <class W>
W begin(W *address, Scope scope, const void *return_address) {
  if (running_block->launch().watched) {
    hazards::atomic_accessed(address, sizeof *address, scope, return_address);
  } else if (traffic::counting) {
    traffic::atomic();
    running_block->preempt();
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

// As the load of a volatile is: it may be one of many until somebody stores there.
template <class W>
W load(const W *address, const void *return_address) {
  if (running_block->launch().watched) {
    hazards::access_memory(address, sizeof *address, {hazards::Kind::Read, true, false, true},
                           return_address);
  } else if (traffic::counting) {
    traffic::polled();
  } else {
    running_block->polled();
  }
  return __atomic_load_n(address, __ATOMIC_RELAXED);
}

template <class W>
void store(W *address, W value, const void *return_address) {
  if (running_block->launch().watched) {
    hazards::access_memory(address, sizeof *address, {hazards::Kind::Write, true, false, true},
                           return_address);
  } else {
    running_block->preempt();
  }
  __atomic_store_n(address, value, __ATOMIC_RELAXED);
}

}  // namespace

#define CUDAEMU_ATOMICS(Word)                                            \
  Word begin_atomic(Word *address, Scope scope) {                        \
    return begin(address, scope, __builtin_return_address(0));           \
  }                                                                      \
  Word compare_and_swap(Word *address, Word expected, Word desired) {    \
    return exchange_if_equal(address, expected, desired);                \
  }
CUDAEMU_WORDS(CUDAEMU_ATOMICS)

uint32_t atomic_load(const uint32_t *address) {
  return load(address, __builtin_return_address(0));
}
uint64_t atomic_load(const uint64_t *address) {
  return load(address, __builtin_return_address(0));
}
void atomic_store(uint32_t *address, uint32_t value) {
  store(address, value, __builtin_return_address(0));
}
void atomic_store(uint64_t *address, uint64_t value) {
  store(address, value, __builtin_return_address(0));
}

// All threads of a block, then one of each block: as kernels build such a barrier themselves.
void grid_barrier(Site at) {
  const Launch &launch = running_block->launch();
  block_barrier(at);
  if (this_thread->rank == 0) {
    GridBarrier &barrier = launch.barrier;
    const uint64_t before = __atomic_load_n(&barrier.passed, __ATOMIC_SEQ_CST);
    fence(Scope::Device);
    if (launch.watched) {
      hazards::atomic_accessed(&barrier.arrived, sizeof barrier.arrived, Scope::Device, nullptr);
    }
    if (__atomic_add_fetch(&barrier.arrived, 1, __ATOMIC_SEQ_CST) % launch.blocks() == 0) {
      __atomic_add_fetch(&barrier.passed, 1, __ATOMIC_SEQ_CST);
    }
    const auto closed = [&] { return __atomic_load_n(&barrier.passed, __ATOMIC_SEQ_CST) == before; };
    while (closed()) {
      // One that was there has opened it before it ended, so this must be looked at first.
      if (__atomic_load_n(&barrier.ended, __ATOMIC_SEQ_CST) > 0 && closed()) {
        diagnose(at, "grid.sync() waits for a block that does not come");
        running_block->abandon();
      }
      running_block->pause();
    }
    if (launch.watched) {
      hazards::atomic_accessed(&barrier.arrived, sizeof barrier.arrived, Scope::Device, nullptr);
    }
  }
  block_barrier(at);
}

void fence(Scope scope) {
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (running_block->launch().watched) hazards::thread_fenced(scope);
  if (traffic::counting && scope == Scope::Device) traffic::fenced();
}

}  // namespace cudaemu
