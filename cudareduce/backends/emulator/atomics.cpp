// Atomic operations and fences. Under the random schedules another thread may run just before an
// atomic operation.
#include <atomic>

#include "diagnostics.h"
#include "races.h"
#include "traffic.h"

namespace cudaemu {
namespace {

template <class W>
W begin(W *address, Scope scope, bool acquires, const void *return_address) {
  if (running_block->launch().watched) {
    races::atomic_reads(address, sizeof *address, scope, acquires, return_address);
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
  const bool changes = expected != desired;
  const bool done = __atomic_compare_exchange_n(address, &expected, desired, false,
                                                __ATOMIC_RELAXED, __ATOMIC_RELAXED);
  if (done && changes && running_block->launch().watched) races::atomic_writes();
  return expected;  // the previous value
}

// Like a volatile load, this may be part of a polling loop.
template <class W>
W load(const W *address, bool acquires, const void *return_address) {
  if (running_block->launch().watched) {
    races::access_memory(address, sizeof *address,
                           {races::Kind::Read, true, false, true, acquires}, return_address);
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
    races::access_memory(address, sizeof *address, {races::Kind::Write, true, false, true},
                           return_address);
  } else {
    running_block->preempt();
  }
  __atomic_store_n(address, value, __ATOMIC_RELAXED);
}

}  // namespace

#define CUDAEMU_ATOMICS(Word)                                            \
  Word begin_atomic(Word *address, Scope scope, bool acquires) {         \
    return begin(address, scope, acquires, __builtin_return_address(0)); \
  }                                                                      \
  Word compare_and_swap(Word *address, Word expected, Word desired) {    \
    return exchange_if_equal(address, expected, desired);                \
  }
CUDAEMU_WORDS(CUDAEMU_ATOMICS)

uint32_t atomic_load(const uint32_t *address, bool acquires) {
  return load(address, acquires, __builtin_return_address(0));
}
uint64_t atomic_load(const uint64_t *address, bool acquires) {
  return load(address, acquires, __builtin_return_address(0));
}
void atomic_store(uint32_t *address, uint32_t value) {
  store(address, value, __builtin_return_address(0));
}
void atomic_store(uint64_t *address, uint64_t value) {
  store(address, value, __builtin_return_address(0));
}

// A barrier of each block, then one among the first threads of all blocks.
void grid_barrier(Site at) {
  const Launch &launch = running_block->launch();
  block_barrier(at);
  if (this_thread->rank == 0) {
    GridBarrier &barrier = launch.barrier;
    const uint64_t before = __atomic_load_n(&barrier.passed, __ATOMIC_SEQ_CST);
    const auto access = [&] {
      races::atomic_reads(&barrier.arrived, sizeof barrier.arrived, Scope::Device, true, nullptr);
    };
    fence(Scope::Device);
    if (launch.watched) {
      access();
      races::atomic_writes();
    }
    if (__atomic_add_fetch(&barrier.arrived, 1, __ATOMIC_SEQ_CST) % launch.blocks() == 0) {
      __atomic_add_fetch(&barrier.passed, 1, __ATOMIC_SEQ_CST);
    }
    const auto closed = [&] { return __atomic_load_n(&barrier.passed, __ATOMIC_SEQ_CST) == before; };
    while (closed()) {
      // `passed` is incremented before any participating block ends, so read `ended` first: if it
      // is not 0 and the barrier is still closed, a block has ended without arriving.
      if (__atomic_load_n(&barrier.ended, __ATOMIC_SEQ_CST) > 0 && closed()) {
        diagnose(at, "grid.sync() waits for a block that does not come");
        running_block->abandon();
      }
      running_block->pause();
    }
    if (launch.watched) access();
  }
  block_barrier(at);
}

void fence(Scope scope, Fence order) {
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (running_block->launch().watched) races::thread_fenced(scope, order);
  if (traffic::counting && scope == Scope::Device) traffic::fenced();
}

}  // namespace cudaemu
