#include "hazard_values.h"

#include <string.h>

namespace cudaemu {
namespace hazards {

void Values::launch_begins() {
  shown_ = nullptr;
  changes_.clear();
  looked_.clear();
  polled_.clear();
}

void Values::changes(const char *address, size_t bytes, Space space, Access by) {
  if (bytes > LARGEST) return;
  Change &change = changes_[place(address, space, by.block())];
  memcpy(change.before, address, bytes);
  change.bytes = bytes;
  change.by = by;
  change.seen.clear();
}

bool Values::show_older(const char *address, size_t bytes, Space space, Me me,
                        uint32_t counter, const Timeline &timeline) {
  const Place here = place(address, space, timeline.block());
  const uint64_t reader = key(timeline.block(), me.thread);
  const auto [looked, new_here] = looked_[here].try_emplace(reader, counter);
  if (!new_here && looked->second == counter) polled_[here].insert(reader);
  looked->second = counter;
  const auto found = changes_.find(here);
  if (found == changes_.end() || found->second.bytes != bytes) return false;
  Change &change = found->second;
  const bool first = change.seen.insert(reader).second;
  if (!first || memcmp(change.before, address, bytes) == 0) return false;
  if (timeline.in_this_block(change.by) && change.by.thread() == me.thread) return false;
  if (timeline.what_is_missing(change.by, me, Space::Global) == nullptr) return false;
  shown_ = const_cast<char *>(address);
  shown_bytes_ = bytes;
  memcpy(present_, address, bytes);
  memcpy(shown_, change.before, bytes);
  return true;
}

void Values::restore() {
  if (shown_ != nullptr) memcpy(shown_, present_, shown_bytes_);
  shown_ = nullptr;
}

bool Values::was_polled(const char *address, Space space, Access reader) const {
  const auto found = polled_.find(place(address, space, reader.block()));
  return found != polled_.end() && found->second.count(key(reader.block(), reader.thread())) != 0;
}

}  // namespace hazards
}  // namespace cudaemu
