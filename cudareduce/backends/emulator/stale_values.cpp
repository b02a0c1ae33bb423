#include "stale_values.h"

#include <string.h>

namespace cudaemu {
namespace races {

void StaleValues::launch_begins() {
  shown_ = nullptr;
  changes_.clear();
  readers_.clear();
  polled_.clear();
}

void StaleValues::changes(const char *address, const char *before, size_t bytes, Space space, Access by) {
  if (bytes > LARGEST) return;
  Change &change = changes_[place(address, space, by.block())];
  memcpy(change.before, before, bytes);
  change.bytes = bytes;
  change.by = by;
  change.seen_by.clear();
}

bool StaleValues::show_stale(const char *address, size_t bytes, Space space, Me me,
                        uint32_t counter, const HappensBefore &order) {
  const Place here = place(address, space, order.block());
  const uint64_t reader = key(order.block(), me.thread);
  const auto [reader_place, new_here] = readers_[here].try_emplace(reader, counter);
  if (!new_here && reader_place->second == counter) polled_[here].insert(reader);
  reader_place->second = counter;
  const auto found = changes_.find(here);
  if (found == changes_.end() || found->second.bytes != bytes) return false;
  Change &change = found->second;
  const bool first = change.seen_by.insert(reader).second;
  if (!first || memcmp(change.before, address, bytes) == 0) return false;
  if (order.in_this_block(change.by) && change.by.thread() == me.thread) return false;
  if (order.missing(change.by, me, Space::Global) == Missing::Nothing) return false;
  shown_ = const_cast<char *>(address);
  shown_bytes_ = bytes;
  memcpy(current_, address, bytes);
  memcpy(shown_, change.before, bytes);
  return true;
}

void StaleValues::restore() {
  if (shown_ != nullptr) memcpy(shown_, current_, shown_bytes_);
  shown_ = nullptr;
}

bool StaleValues::was_polled(const char *address, Space space, Access reader) const {
  const auto found = polled_.find(place(address, space, reader.block()));
  return found != polled_.end() && found->second.count(key(reader.block(), reader.thread())) != 0;
}

}  // namespace races
}  // namespace cudaemu
