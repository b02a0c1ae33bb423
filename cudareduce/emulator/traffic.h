// Memory traffic of the warps of a launch, counted from the addresses of their lanes. Only launches of
// kernels compiled to report their accesses are counted (see Launch::counted), on one OS thread.
//
// The lanes of a warp run one after the other. The k-th accesses of all lanes at one place in the code
// since the warp last synchronised (barrier, shuffle or vote) are one request of the warp.
#pragma once
#include <stddef.h>
#include <stdint.h>

#include "block.h"
#include "segments.h"

namespace cudaemu {
namespace traffic {

// The same fields in the same order as in program.py.
struct Totals {
  uint64_t read_bytes;     // by lanes, from global memory
  uint64_t written_bytes;  // to it
  uint64_t requests;       // of warps to global memory
  uint64_t sectors;        // of 32 bytes that these touch
  uint64_t accesses;       // of warps to shared memory
  uint64_t wavefronts;     // that these take in 32 banks of 4 bytes
  uint64_t atomics;        // by lanes
  uint64_t barriers;       // that blocks have passed
  uint64_t collectives;    // shuffles, votes and the like of warps
  uint64_t fenced_blocks;  // in which some thread has come to a fence of the whole GPU
  uint64_t unfenced;       // atomics and volatile stores behind a plain store, with no such fence between
};

// An access of a thread of block 0, or a shuffle or vote of a warp, in the order in which they ran.
// The same fields in the same order as in program.py.
struct Event {
  enum Kind : uint32_t { GlobalRead, GlobalWrite, SharedRead, SharedWrite, Exchange };
  uint32_t kind;
  uint32_t thread;       // within the block; of an exchange the first of its warp
  uint32_t barriers;     // that the block had passed
  uint32_t collectives;  // that the warp had passed
  uint64_t offset;       // in bytes, from where the buffer or the shared memory begins
  uint64_t bytes;        // of an exchange the mask of its lanes
};

extern bool counting;  // a launch is counted now

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
