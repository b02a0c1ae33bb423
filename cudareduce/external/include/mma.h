#pragma once
#include "cuda_fp16.h"

namespace nvcuda::wmma {
struct matrix_a;
struct matrix_b;
struct accumulator;
struct row_major;
struct col_major;
template <class Use, int M, int N, int K, class T, class Layout = void>
struct fragment;
}  // namespace nvcuda::wmma
