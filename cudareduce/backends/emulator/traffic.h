// Counts the memory traffic of the warps of a launch from the addresses of their lanes, for launches
// with Launch::counted. Their kernels must be compiled to report accesses.
//
// The lanes of a warp run one after the other. The k-th accesses of its lanes at one code address,
// counted from the last barrier, shuffle or vote of the warp, form one request.
#pragma once
#include <stddef.h>
#include <stdint.h>

#include "block.h"
#include "segments.h"

namespace cudaemu {
namespace traffic {

// The fields and their order are the same in program.py.
struct Totals {
  uint64_t read_bytes;     // bytes that lanes read from global memory
  uint64_t written_bytes;  // bytes that lanes write to global memory
  uint64_t requests;       // requests of warps to global memory
  uint64_t sectors;        // 32-byte sectors in these requests
  uint64_t accesses;       // requests of warps to shared memory
  uint64_t wavefronts;     // wavefronts of these requests, for 32 banks of 4 bytes
  uint64_t atomics;        // atomic operations of lanes
  uint64_t barriers;       // barriers that blocks have passed
  uint64_t collectives;    // warp-level operations such as shuffles and votes
  uint64_t fenced_blocks;  // blocks in which a thread has executed a device-wide fence
  uint64_t unfenced;       // atomics and volatile stores after a plain store without such a fence
};

// An access of a thread of block 0, or a shuffle or vote of a warp of it. The fields and their order
// are the same in program.py.
struct Event {
  enum Kind : uint32_t { GlobalRead, GlobalWrite, SharedRead, SharedWrite, Exchange };
  uint32_t kind;
  uint32_t thread;       // index in the block; for an exchange, of the first thread of its warp
  uint32_t barriers;     // barriers that the block has passed before
  uint32_t collectives;  // warp-level operations that the warp has passed before
  uint64_t offset;       // in bytes from the start of the buffer or of shared memory
  uint64_t bytes;        // size of the access; for an exchange, the mask of its lanes
};

extern bool counting;  // true while a counted launch runs

void launch_begins(const Launch &launch, const Segments &segments);
void launch_ends();
void block_ends(const Block &block);

void access(const void *address, size_t bytes, bool writes, bool polls, const void *return_address);
void atomic();
void polled();
void fenced();
void barrier_released();
void warp_together(unsigned warp, unsigned lanes, bool exchanges);

}  // namespace traffic
}  // namespace cudaemu
