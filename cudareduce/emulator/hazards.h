// The hazard checker's view of a launch. Only launches of kernels that report their accesses are
// watched, see Launch::watched, and only for those may the functions below be called.
#pragma once
#include <stddef.h>
#include <stdint.h>

#include "block.h"

namespace cudaemu {
namespace hazards {

void watch_buffer(const char *start, size_t bytes, unsigned cell_bytes);
void forget_buffer(const char *start);

enum class Kind { Read, Write, Atomic };
// What the hooks in the kernel's code call. The address to return to tells the place in the kernel.
void access_memory(const void *address, size_t bytes, Kind kind, const void *return_address);

void launch_begins(const Launch &launch);
void launch_ends();
void block_begins(const char *shared, size_t shared_bytes);
void barrier_released();
void warp_synchronised(unsigned warp, unsigned lanes);
void thread_fenced(Scope scope);
void atomic_accessed(const void *address, size_t bytes, const void *return_address);

}  // namespace hazards
}  // namespace cudaemu
