// Stale values that a polling load may still read.
//
// CUDA does not specify when a volatile store or an atomic operation becomes visible to a thread that
// is not ordered after it. The emulator therefore gives the first volatile load of such a thread the
// value before the store. A loop that polls until the value changes stays right; a kernel that reads
// the value only once gets a wrong result.
#pragma once
#include <stdint.h>

#include <map>
#include <set>
#include <utility>

#include "happens_before.h"

namespace cudaemu {
namespace races {

class StaleValues {
 public:
  void launch_begins();
  // Records the value that a write replaces.
  void changes(const char *address, const char *before, size_t bytes, Space space, Access by);
  // If this thread may still read the previous value, writes that to memory until `restore`.
  bool show_stale(const char *address, size_t bytes, Space space, Me me, uint32_t counter,
                  const HappensBefore &order);
  void restore();
  // True if this thread has read the address repeatedly from one place in the kernel.
  bool was_polled(const char *address, Space space, Access reader) const;

 private:
  static constexpr size_t LARGEST = 16;
  struct Change {
    char before[LARGEST];
    size_t bytes;
    Access by;
    std::set<uint64_t> seen_by;  // threads
  };
  // The shared memory of all blocks has the same addresses.
  using Place = std::pair<const char *, uint32_t>;

  static uint64_t key(uint32_t block, unsigned thread) {
    return static_cast<uint64_t>(block) * MAX_THREADS + thread;
  }
  static Place place(const char *address, Space space, uint32_t block) {
    return {address, space == Space::Shared ? block : ~0u};
  }

  std::map<Place, Change> changes_;
  std::map<Place, std::map<uint64_t, uint32_t>> readers_;  // the last place of each thread
  std::map<Place, std::set<uint64_t>> polled_;
  char *shown_ = nullptr;  // the address that holds a stale value now
  size_t shown_bytes_ = 0;
  char current_[LARGEST];
};

}  // namespace races
}  // namespace cudaemu
