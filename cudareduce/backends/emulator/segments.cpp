#include "segments.h"

#include <elf.h>
#include <link.h>

namespace cudaemu {
namespace {

struct Search {
  const void *code;
  Segments found;
};

int visit_library(dl_phdr_info *library, size_t, void *data) {
  auto *search = static_cast<Search *>(data);
  Segments found;
  for (int i = 0; i < library->dlpi_phnum; i++) {
    const ElfW(Phdr) &header = library->dlpi_phdr[i];
    char *start = reinterpret_cast<char *>(library->dlpi_addr + header.p_vaddr);
    if (header.p_type == PT_TLS) {
      found.shared = {static_cast<char *>(library->dlpi_tls_data), header.p_memsz};
    } else if (header.p_type == PT_LOAD && (header.p_flags & PF_X) != 0) {
      found.code = {start, header.p_memsz};
    } else if (header.p_type == PT_LOAD && (header.p_flags & PF_W) != 0) {
      found.variables.push_back({start, header.p_memsz});
    }
  }
  if (!found.code.contains(search->code)) return 0;
  search->found = found;
  return 1;
}

}  // namespace

Segments segments_of(const Entry &entry) {
  char *end = static_cast<char *>(entry.shared_segment());
  Search search = {reinterpret_cast<const void *>(entry.invoke), {}};
  dl_iterate_phdr(visit_library, &search);
  search.found.behind_shared = {end, BEHIND_SHARED};
  return search.found;
}

}  // namespace cudaemu
