// What orders two accesses: the rules of the hazard checker, without the memory that it watches.
//
// One OS thread runs the blocks one after the other, so a single clock suffices. It ticks at every
// event that orders anything: the start of a block, a barrier, __syncwarp, a fence, an atomic
// operation. An access is remembered as its tick and its thread. Whether it comes before the access
// at hand is then a matter of comparing ticks:
//
//   in the same thread              always;
//   in the same block               a barrier was released since, or a __syncwarp in which both
//                                   lanes took part (if only through other lanes), or as below;
//   in another block                the writer's block fenced and then announced it by an atomic
//                                   operation, and the reader's block did an atomic operation on
//                                   the same address, in the same warp or before its last barrier;
//   in an earlier launch            always.
//
// A __threadfence_block() is such a fence within its block and none to another one.
//
// Of the write, the fence and the announcement each comes before the next in the same thread, or by
// a barrier or __syncwarp between them. On the reader's side no fence is asked for: published
// kernels, NVIDIA's threadFenceReduction among them, do without and read past the L1 instead.
//
// Shuffles order nothing, as on the GPU. Not modelled: locks, and what a third block passes on.
#pragma once
#include <stddef.h>
#include <stdint.h>

#include <map>
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

class Timeline {
 public:
  void launch_begins(unsigned threads);
  void block_begins();
  void barrier_released();
  void warp_synchronised(unsigned warp, unsigned lanes);
  void thread_fenced(Me me, Scope scope);
  void atomic_done(Me me, const char *address, Space space);

  uint64_t now() const { return now_; }
  bool in_this_launch(Access access) const { return access.tick() >= launch_start_; }
  bool in_this_block(Access access) const { return access.tick() >= block_start_; }
  bool since_last_barrier(Access access) const { return access.tick() >= epoch_start_; }

  // Of an access in this launch: which block made it, counted as they ran.
  size_t block_of(Access access) const;
  // And the address of that block's last atomic operation.
  const char *last_atomic_of_block(Access access) const;

  // Null if the earlier access is ordered before the one at hand, else what is missing.
  const char *what_is_missing(Access earlier, Me me, Space space) const;

 private:
  // For each thread of a block: what it did before this tick. Empty: nothing.
  using Ticks = std::vector<uint64_t>;

  // By address: what was fenced before a block's atomic operations there.
  using Announced = std::map<const char *, Ticks>;

  struct BlockRecord {
    uint64_t start;
    const char *last_atomic;
    Announced announced[SCOPES];
  };

  // What lies before fences: those before the last barrier, and by thread those it comes after.
  struct Fences {
    Ticks all;
    std::map<unsigned, Ticks> before;
  };

  // The block's atomic operations on one address.
  struct Atomics {
    Space space;
    uint64_t first;
    uint64_t last_of_warp[MAX_THREADS / WARP];
  };

  static void take_later(Ticks &ticks, const Ticks &others);
  const Announced &announced_by(Access earlier) const;
  bool is_announced(Access earlier) const;
  bool is_handed_over(Access earlier, Me me) const;
  bool has_heard(const char *address, Access earlier, Me me) const;

  uint64_t now_ = 1;
  uint64_t launch_start_ = 1;
  unsigned threads_ = 0;
  std::vector<BlockRecord> blocks_;  // in the order in which they ran

  // The block at hand.
  uint64_t block_start_ = 1;
  uint64_t epoch_start_ = 1;  // the last barrier, or the start of the block
  // joined_[w][a][b]: what lane b did before this tick comes before what lane a does now.
  uint64_t joined_[MAX_THREADS / WARP][WARP][WARP];
  Fences fences_[SCOPES];  // a fence for the device is one for the block as well
  std::map<const char *, Atomics> atomics_;
};

}  // namespace hazards
}  // namespace cudaemu
