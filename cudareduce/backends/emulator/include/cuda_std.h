// cuda::std as an alias of std. The headers of cuda/std include the standard header, then this one.
#pragma once

namespace std {}

namespace cuda {
namespace std {
using namespace ::std;
}
}  // namespace cuda
