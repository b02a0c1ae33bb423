// Data race detection, for launches with Launch::watched. Their kernels must be compiled to report
// accesses. Do not call the functions below during other launches.
#pragma once
#include <stddef.h>
#include <stdint.h>

#include <memory>

#include "block.h"
#include "shadow_memory.h"
#include "segments.h"

namespace cudaemu {
namespace races {

// State of a block that has begun and not ended.
struct WatchedBlock;
struct Forget {
  void operator()(WatchedBlock *block) const;
};
using WatchedBlockPointer = std::unique_ptr<WatchedBlock, Forget>;

void watch_buffer(const char *start, size_t bytes, unsigned cell_bytes);
void forget_buffer(const char *start);

void launch_begins(const Launch &launch, const Segments &segments);
void launch_ends();
WatchedBlockPointer begin_block(uint64_t number, Segment shared, Segment dynamic_shared);
void enter_block(WatchedBlock &block);
void leave_block();

// Called for each access of the kernel; `return_address` in the kernel identifies the source line.
void access_memory(const void *address, size_t bytes, Manner manner, const void *return_address);
void barrier_released();
void warp_synchronised(unsigned warp, unsigned lanes);
void thread_fenced(Scope scope, Fence order);
// A read-modify-write operation consists of a read, and of a write if it changes the value.
void atomic_reads(const void *address, size_t bytes, Scope scope, bool acquires,
                  const void *return_address);
void atomic_writes();
void copying(bool begins);  // the running thread begins or ends an asynchronous copy

}  // namespace races
}  // namespace cudaemu
