// What orders two accesses: the rules of the hazard checker, without the memory that it watches.
//
// One OS thread runs all blocks, so a single clock suffices. It ticks at every event that orders
// anything: the start of a block, a barrier, __syncwarp, a fence, an atomic operation, an access to a
// volatile. An access is remembered as its tick, its block and its thread. It comes before the access
// at hand
//
//   in the same thread              always;
//   in the same block               if a barrier was released since, or a __syncwarp in which both
//                                   lanes took part (if only through other lanes), or as below;
//   in another block                if a message has brought word of it;
//   in an earlier launch            always.
//
// A message lies where a thread has fenced and then written: by an atomic operation, which adds to
// what it finds there, or by a store to a volatile, which replaces it. It says what came before the
// fence, and what the sender had heard from others. The reader's warp hears it by reading what was
// written there, by an atomic operation or a load of a volatile, and the whole block at its next
// barrier. So it is the value that hands over, and a flag that was read too early hands over nothing.
//
// Of the write, the fence and the announcement each comes before the next in the same thread, or by a
// barrier or __syncwarp between them. A __threadfence_block() is such a fence within its block and
// none to another one, as is an atomic operation whose scope is the block. On the reader's side no
// fence is asked for: published kernels, NVIDIA's threadFenceReduction among them, do without and
// read past the L1 instead.
//
// Shuffles order nothing, as on the GPU.
#pragma once
#include <stddef.h>
#include <stdint.h>

#include <map>
#include <memory>
#include <unordered_map>
#include <vector>

#include "block.h"
#include "hazard_shadow.h"

namespace cudaemu {
namespace hazards {

enum class Space { Shared, Global };
constexpr unsigned SCOPES = 2;

struct Me {
  unsigned thread;
  unsigned warp() const { return thread / WARP; }
  unsigned lane() const { return thread % WARP; }
};

// For each thread of a block: what it did before this tick. Empty: nothing.
using Ticks = std::vector<uint64_t>;

// What is known of blocks, by their numbers.
class Knowledge {
 public:
  bool covers(Access access) const;
  bool empty() const { return of_.empty(); }
  void clear() { of_.clear(); }
  void learn(uint32_t block, const std::shared_ptr<const Ticks> &ticks);
  void learn(const Knowledge &others);
  void learn(uint32_t block, const Knowledge &others);  // of this block alone

 private:
  std::map<uint32_t, std::shared_ptr<const Ticks>> of_;
};

// By the scope of the fence: what every reader learns, and what those of the sender's block do.
struct Message {
  Knowledge of[SCOPES];
};

// What lies at an address, and what lay there before the latest write: see hazard_values.h.
struct Mailbox {
  Message latest, before;
};

using Mailboxes = std::unordered_map<const char *, Mailbox>;

// What orders the threads of one block.
struct BlockOrder {
  // What lies before fences: those before the last barrier, and by thread those it comes after.
  struct Fences {
    Ticks all;
    std::map<unsigned, Ticks> before;
  };

  uint32_t number = 0;
  uint64_t epoch_start = 1;  // the last barrier, or the start of the block
  // joined[w][a][b]: what lane b did before this tick comes before what lane a does now.
  uint64_t joined[MAX_THREADS / WARP][WARP][WARP];
  Fences fences[SCOPES];  // a fence for the device is one for the block as well
  Knowledge heard;        // before the last barrier
  Knowledge heard_by[MAX_THREADS / WARP];
  Mailboxes mailboxes;  // in its shared memory
};

class Timeline {
 public:
  void launch_begins(unsigned threads);
  void block_begins(BlockOrder &block, uint32_t number);
  void block_goes_on(BlockOrder &block) { block_ = &block; }
  void barrier_released();
  void warp_synchronised(unsigned warp, unsigned lanes);
  void thread_fenced(Me me, Scope scope);
  // A store that other threads may wait for.
  void store(Me me, const char *address, Space space);
  void atomic(Me me, const char *address, Space space, Scope scope);
  // The running thread has read what was written last, or what was there before.
  void load(Me me, const char *address, Space space, bool older);

  uint64_t now() const { return now_; }
  uint64_t tick() { return ++now_; }
  uint32_t block() const { return block_->number; }
  bool in_this_launch(Access access) const { return access.tick() >= launch_start_; }
  bool in_this_block(Access access) const {
    return in_this_launch(access) && access.block() == block_->number;
  }
  bool since_last_barrier(Access access) const { return access.tick() >= block_->epoch_start; }

  // The address of the last atomic operation of the block of an access in this launch.
  const char *last_atomic_of_block(Access access) const;

  // Null if the earlier access is ordered before the one at hand, else what is missing.
  const char *what_is_missing(Access earlier, Me me, Space space) const;

 private:
  static void take_later(Ticks &ticks, const Ticks &others);
  Mailbox &mailbox_at(const char *address, Space space);
  void hear_message(Me me, const Message &message, Scope scope);
  void add_own(Message &message, Me me, Scope scope);
  bool has_heard(Access earlier, Me me) const;
  bool is_announced(Access earlier) const;

  uint64_t now_ = 1;
  uint64_t launch_start_ = 1;
  unsigned threads_ = 0;
  BlockOrder *block_ = nullptr;  // the one that runs
  Mailboxes mailboxes_;          // in global memory
  std::unordered_map<uint32_t, const char *> last_atomics_;  // by block
};

}  // namespace hazards
}  // namespace cudaemu
