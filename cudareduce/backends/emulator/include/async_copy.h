// Asynchronous copies: one call begins a copy, another completes it. Until then all bits of the target
// are set, so that a kernel that reads it too early gets a wrong result.
#pragma once

#undef CUDAEMU_THREAD_BEGINS
#define CUDAEMU_THREAD_BEGINS cudaemu::forget_copies();

namespace cudaemu {

template <class Word>
__forceinline__ void copy_words(const Copy &copy) {
  copying(true);
  for (size_t k = 0; k < copy.bytes / sizeof(Word); k++) {
    static_cast<Word *>(copy.target)[k] = static_cast<const Word *>(copy.source)[k];
  }
  copying(false);
}
template <class Word>
__forceinline__ void poison_words(const Copy &copy) {
  copying(true);
  for (size_t k = 0; k < copy.bytes / sizeof(Word); k++) {
    static_cast<Word *>(copy.target)[k] = static_cast<Word>(~0ull);
  }
  copying(false);
}

// The largest power of two, at most 8, that divides both addresses and the number of bytes.
inline size_t unit_of(const void *target, const void *source, size_t bytes) {
  const size_t all =
      reinterpret_cast<size_t>(target) | reinterpret_cast<size_t>(source) | bytes | 8;
  return all & -all;
}

__forceinline__ void begin_copy(void *target, const void *source, size_t bytes, const void *owner) {
  if (bytes == 0) return;
  const Copy copy = {target, source, bytes, owner};
  const size_t unit = unit_of(target, source, bytes);
  if (unit == 8) poison_words<uint64_t>(copy);
  if (unit == 4) poison_words<uint32_t>(copy);
  if (unit == 2) poison_words<uint16_t>(copy);
  if (unit == 1) poison_words<uint8_t>(copy);
  remember_copy(copy);
}

// Begins one thread's part of a copy by several threads, in units as wide as possible.
__forceinline__ void share_copy(void *target, const void *source, size_t bytes, size_t rank,
                                size_t threads, const void *owner) {
  const size_t unit = unit_of(target, source, bytes), units = bytes / unit;
  const size_t share = (units + threads - 1) / threads;
  const size_t first = rank * share < units ? rank * share : units;
  const size_t end = first + share < units ? first + share : units;
  begin_copy(static_cast<char *>(target) + first * unit,
             static_cast<const char *>(source) + first * unit, (end - first) * unit, owner);
}

__forceinline__ void finish_copies(unsigned newest, const void *owner) {
  Copy copy;
  while (take_copy(&copy, newest, owner)) {
    const size_t unit = unit_of(copy.target, copy.source, copy.bytes);
    if (unit == 8) copy_words<uint64_t>(copy);
    if (unit == 4) copy_words<uint32_t>(copy);
    if (unit == 2) copy_words<uint16_t>(copy);
    if (unit == 1) copy_words<uint8_t>(copy);
  }
}

}  // namespace cudaemu

namespace cuda {

// A size with an alignment that the caller guarantees; the alignment is checked.
template <size_t alignment>
struct aligned_size_t {
  static constexpr size_t align = alignment;
  size_t value;
  explicit aligned_size_t(size_t bytes, cudaemu::Site at = cudaemu::Site::here()) : value(bytes) {
    if (bytes % alignment != 0)
      cudaemu::assertion_failed("aligned_size_t: the size is a multiple", at);
  }
  operator size_t() const { return value; }
};

}  // namespace cuda
