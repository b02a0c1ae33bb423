// Shadow memory: the latest accesses to each cell of a range of memory.
#pragma once
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <algorithm>
#include <new>
#include <utility>

#include "block.h"

namespace cudaemu {
namespace races {

enum class Kind { Read, Write, Atomic };

// The kind of an access and its memory order.
struct Manner {
  Kind kind;
  bool strong;              // atomic or volatile: no data race with other strong accesses
  bool block_only = false;  // atomic with block scope
  bool atomic = false;      // atomic: a read-modify-write, load or store
  bool acquires = true;     // a load that acquires without a fence after it
};

// The time, thread and code address of an access; all zero if there was none.
class Access {
 public:
  Access() = default;
  Access(uint64_t tick, uint32_t block, unsigned thread, Manner manner, uint32_t counter)
      : bits_(tick << 13 | static_cast<uint64_t>(thread) << 3 | (manner.block_only ? 4 : 0) |
              (manner.strong ? 2 : 0) | (manner.atomic ? 1 : 0)),
        counter_(counter),
        block_(block) {}

  bool none() const { return bits_ == 0; }
  bool atomic() const { return (bits_ & 1) != 0; }
  bool strong() const { return (bits_ & 2) != 0; }
  bool block_only() const { return (bits_ & 4) != 0; }
  unsigned thread() const { return static_cast<unsigned>(bits_ >> 3 & (MAX_THREADS - 1)); }
  uint64_t tick() const { return bits_ >> 13; }
  uint32_t counter() const { return counter_; }  // the place in the kernel's library
  uint32_t block() const { return block_; }

 private:
  uint64_t bits_;
  uint32_t counter_;
  uint32_t block_;
};

// The latest access, and the latest by a different thread. A thread never races with itself, so its
// own access must not replace one that it may race with.
struct Latest {
  Access one, other;
};

// Strong and weak accesses are kept separately: a strong access orders nothing, so it must not replace
// a weak one.
struct Cell {
  Latest write, strong_write, read, strong_read;
};

// The cells of a range of memory. Allocated by calloc rather than as a vector, so that cells of a
// large input take physical memory only when used; an all-zero cell is empty.
class Shadow {
 public:
  Shadow(const char *start, size_t bytes, unsigned cell_bytes)
      : start_(start), bytes_(bytes), cell_bytes_(cell_bytes) {
    cells_ = static_cast<Cell *>(calloc(bytes / cell_bytes + 1, sizeof(Cell)));
    if (cells_ == nullptr) throw std::bad_alloc();
  }
  Shadow(Shadow &&other) noexcept { swap(other); }
  Shadow &operator=(Shadow &&other) noexcept {
    swap(other);
    return *this;
  }
  ~Shadow() { free(cells_); }

  const char *start() const { return start_; }
  bool contains(const char *address) const {
    return static_cast<size_t>(address - start_) < bytes_;
  }
  Cell *first(const char *address) const { return cells_ + (address - start_) / cell_bytes_; }
  Cell *last(const char *address, size_t bytes) const {
    const size_t end = std::min(static_cast<size_t>(address - start_) + bytes, bytes_);
    return cells_ + (end - 1) / cell_bytes_;
  }
  // The address of a cell's first byte.
  const char *place(const Cell *cell) const { return start_ + (cell - cells_) * cell_bytes_; }

 private:
  void swap(Shadow &other) {
    std::swap(start_, other.start_);
    std::swap(bytes_, other.bytes_);
    std::swap(cell_bytes_, other.cell_bytes_);
    std::swap(cells_, other.cells_);
  }

  const char *start_ = nullptr;
  size_t bytes_ = 0;
  size_t cell_bytes_ = 1;
  Cell *cells_ = nullptr;
};

}  // namespace races
}  // namespace cudaemu
