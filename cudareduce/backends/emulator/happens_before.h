// The happens-before relation between memory accesses, kept with vector clocks.
//
// One OS thread runs all blocks of a watched launch, so a single clock suffices. It ticks at every
// synchronisation: the start of a block, a barrier, __syncwarp, a fence, an atomic operation, a
// volatile access. An access is recorded with its tick, block and thread. It happens before a later
// access
//
//   by the same thread              always;
//   in the same block               if a barrier was released in between, or a __syncwarp in which
//                                   both lanes took part (also transitively), or as below;
//   in another block                if a release/acquire edge connects them;
//   in an earlier launch            always.
//
// A release is a fence followed by a write: an atomic operation that changes the value, which extends
// the release sequence of its address, or a volatile or atomic store, which starts a new one. It
// carries what happened before the fence and all that its thread had acquired. The reader's warp
// acquires it by an atomic operation or a volatile load that reads this value, and the whole block at
// its next barrier. A read of an older value acquires nothing. An atomic operation that leaves the
// value as it was releases nothing: no reader can tell whether it came before or after.
//
// CUDA's own atomic functions and volatile loads acquire without a fence on the reader's side, since
// published kernels (NVIDIA's threadFenceReduction among them) do without. A cuda::atomic acquires
// only with the order acquire, or by a fence after it.
//
// The write, the fence and the atomic operation may be in different threads with a barrier or
// __syncwarp between them. __threadfence_block() and atomic operations of block scope connect threads
// of one block only. Shuffles order nothing, as on the GPU.
#pragma once
#include <stddef.h>
#include <stdint.h>

#include <map>
#include <memory>
#include <set>
#include <unordered_map>
#include <vector>

#include "block.h"
#include "shadow_memory.h"

namespace cudaemu {
namespace races {

enum class Space { Shared, Global };
constexpr unsigned SCOPES = 2;

struct Me {
  unsigned thread;
  unsigned warp() const { return thread / WARP; }
  unsigned lane() const { return thread % WARP; }
};

// For each thread of a block, the tick before which all its accesses happen before the reader.
// Empty if there are none.
using Ticks = std::vector<uint64_t>;

// Ticks by block number.
class VectorClock {
 public:
  bool covers(Access access) const;
  void clear() { of_.clear(); }
  void join(uint32_t block, const std::shared_ptr<const Ticks> &ticks);
  void join(const VectorClock &other);
  void join(uint32_t block, const VectorClock &other);  // only the ticks of this block

 private:
  std::map<uint32_t, std::shared_ptr<const Ticks>> of_;
};

// The clocks that an acquire joins, by the scope of the release; Scope::Block is for readers in the
// same block.
struct Release {
  VectorClock of[SCOPES];
};

// The release sequence at an address, and the one that the latest write replaced, for readers of a
// stale value (see stale_values.h).
struct Releases {
  Release latest, before;
};

using ReleasesByAddress = std::unordered_map<const char *, Releases>;

// The clocks of the threads of one block.
struct BlockClock {
  // The accesses before a fence: up to the last barrier for the block, since then for each thread.
  struct Fences {
    Ticks all;
    std::map<unsigned, Ticks> by_thread;
  };

  uint32_t number = 0;
  uint64_t epoch_start = 1;  // the last barrier, or the start of the block
  // joined[w][a][b]: accesses of lane b before this tick happen before those that lane a does now.
  uint64_t joined[MAX_THREADS / WARP][WARP][WARP];
  Fences fences[SCOPES];  // a device fence is also a block fence
  VectorClock acquired;   // before the last barrier
  VectorClock acquired_by_warp[MAX_THREADS / WARP];
  std::map<unsigned, Release> observed;  // by thread: relaxed reads, which its next fence acquires
  ReleasesByAddress releases;            // in shared memory
};

// The missing synchronisation between two unordered accesses.
enum class Missing {
  Nothing,       // they are ordered
  Syncwarp,      // both threads are in one warp
  Syncthreads,   // in one block
  BlockOrder,    // in two blocks, and the first block has done nothing to hand over its write
  Fence,         // between the write and the atomic operation that announces it
  Acquire,       // the write was released, and the reader has not acquired it
  DeviceScope,   // an atomic operation of block scope, and two blocks
};

class HappensBefore {
 public:
  void launch_begins(unsigned threads);
  void block_begins(BlockClock &block, uint32_t number);
  void block_resumes(BlockClock &block) { block_ = &block; }
  void barrier_released();
  void warp_synchronised(unsigned warp, unsigned lanes);
  void thread_fenced(Me me, Scope scope, Fence order);
  void store(Me me, const char *address, Space space);  // volatile or atomic
  void atomic_reads(Me me, const char *address, Space space, Scope scope, bool acquires);
  void atomic_writes(Me me, const char *address, Space space, Scope scope);
  // A volatile or atomic load; `stale` if it read the value before the latest write.
  void load(Me me, const char *address, Space space, bool stale, bool acquires);

  uint64_t now() const { return now_; }
  uint32_t block() const { return block_->number; }
  bool in_this_launch(Access access) const { return access.tick() >= launch_start_; }
  bool in_this_block(Access access) const {
    return in_this_launch(access) && access.block() == block_->number;
  }
  bool since_last_barrier(Access access) const { return access.tick() >= block_->epoch_start; }

  // The address of the last atomic operation of the block of an access in this launch.
  const char *last_atomic_of_block(Access access) const;

  Missing missing(Access earlier, Me me, Space space) const;

 private:
  static void take_later(Ticks &ticks, const Ticks &others);
  Releases &releases_at(const char *address, Space space);
  void acquire(Me me, const Release &release, Scope scope);
  void observe(Me me, const Release &release, Scope scope, bool acquires);
  void add_own(Release &release, Me me, Scope scope);
  bool has_acquired(Access earlier, Me me) const;
  bool is_released(Access earlier) const;

  uint64_t now_ = 1;
  uint64_t launch_start_ = 1;
  unsigned threads_ = 0;
  BlockClock *block_ = nullptr;  // the running one
  ReleasesByAddress releases_;   // in global memory
  std::unordered_map<uint32_t, const char *> last_atomics_;  // by block
  std::set<uint32_t> publishers_;  // blocks that have made an atomic operation or a volatile store
};

}  // namespace races
}  // namespace cudaemu
