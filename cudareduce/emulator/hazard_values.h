// Older values that a load may still see.
//
// Nothing says when a store to a volatile, or an atomic operation, is seen by a thread that it is not
// ordered before. So the first look at it, a load of a volatile, is given the value before it: who
// looks again until it changes is right, and who takes it as it comes is found out by its answer.
#pragma once
#include <stdint.h>

#include <map>
#include <set>
#include <utility>

#include "hazard_order.h"

namespace cudaemu {
namespace hazards {

class Values {
 public:
  void launch_begins();
  // Before what is at the address changes.
  void changes(const char *address, size_t bytes, Space space, Access by);
  // Puts an older value in place until `restore`, if there is one that this thread may see.
  bool show_older(const char *address, size_t bytes, Space space, Me me, uint32_t counter,
                  const Timeline &timeline);
  void restore();
  // Whether this thread has looked here from one place in the kernel again and again.
  bool was_polled(const char *address, Space space, Access reader) const;

 private:
  static constexpr size_t LARGEST = 16;
  struct Change {
    char before[LARGEST];
    size_t bytes;
    Access by;
    std::set<uint64_t> seen;  // by which threads
  };
  // Shared memory of all blocks lies at the same address.
  using Place = std::pair<const char *, uint32_t>;

  static uint64_t key(uint32_t block, unsigned thread) {
    return static_cast<uint64_t>(block) * MAX_THREADS + thread;
  }
  static Place place(const char *address, Space space, uint32_t block) {
    return {address, space == Space::Shared ? block : ~0u};
  }

  std::map<Place, Change> changes_;
  std::map<Place, std::map<uint64_t, uint32_t>> looked_;  // from where, by thread
  std::map<Place, std::set<uint64_t>> polled_;
  char *shown_ = nullptr;  // where an older value stands now
  size_t shown_bytes_ = 0;
  char present_[LARGEST];
};

}  // namespace hazards
}  // namespace cudaemu
