// An OS thread that runs blocks of a launch: one after the other, or alternately if blocks wait for
// each other.
#pragma once
#include <atomic>
#include <memory>
#include <vector>

#include "block.h"
#include "races.h"
#include "segments.h"

namespace cudaemu {

constexpr size_t MAX_DYNAMIC_SHARED = 256 << 10;

// A block that has begun and not ended, with a copy of its shared memory while another block runs.
struct Resident {
  explicit Resident(bool guarded) : block(guarded) {}
  ~Resident();
  Resident(const Resident &) = delete;

  char *dynamic_shared(size_t bytes);

  Block block;
  std::vector<char> shared;  // static shared memory
  races::WatchedBlockPointer watched;

 private:
  char *dynamic_end_ = nullptr;
};

// Shared by the OS threads of a launch.
struct Handout {
  std::atomic<uint64_t> next{0};  // the lowest block that no OS thread has taken
  std::atomic<bool> cut{false};   // the time limit was reached
};

class Worker {
 public:
  void run(const Launch &launch, Handout &handout, unsigned workers);

 private:
  bool has_fresh(const Launch &launch, Handout &handout);
  uint64_t number(const Launch &launch) const;
  void enter(Resident &resident);
  void check_behind_shared(const Launch &launch, Resident &resident) const;
  Resident *start_fresh(const Launch &launch);
  Resident *choose_waiting(const Launch &launch);
  void drop_waiting();
  uint64_t random();

  std::vector<std::unique_ptr<Resident>> residents_;
  std::vector<Resident *> idle_;
  std::vector<Resident *> waiting_;  // paused blocks, longest pause first
  Resident *entered_ = nullptr;      // the block whose shared memory is swapped in
  Segments segments_;
  uint64_t first_ = 0, last_ = 0;  // range of blocks taken from the handout and not started
  uint64_t random_ = 1;
};

}  // namespace cudaemu
