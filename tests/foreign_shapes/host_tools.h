// Beside header_with_host_code.cu: what a .cu file keeps of its host code in a header.
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <vector>

inline void check(cudaError_t status)
{
    if (status == cudaSuccess) return;
    fprintf(stderr, "%s\n", cudaGetErrorString(status));
    throw std::runtime_error("CUDA");
}

inline std::vector<int> numbers(int count) { return std::vector<int>(count, 1); }
