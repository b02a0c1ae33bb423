// cuda::std as far as it is the standard library under another name. A header of it includes this,
// after the standard one that it stands for.
#pragma once

namespace std {}

namespace cuda {
namespace std {
using namespace ::std;
}
}  // namespace cuda
