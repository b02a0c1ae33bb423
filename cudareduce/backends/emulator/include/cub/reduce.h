// CUB's reductions of a block's and a warp's values. Only the first thread gets the result; in CUB the
// others' return values are undefined, here they are their own values. As in CUB, a barrier is needed
// before the temporary storage is reused.
#pragma once

namespace cub {

struct Sum {
  template <class T>
  T operator()(const T &a, const T &b) const { return a + b; }
};
struct Max {
  template <class T>
  T operator()(const T &a, const T &b) const { return a < b ? b : a; }
};
struct Min {
  template <class T>
  T operator()(const T &a, const T &b) const { return b < a ? b : a; }
};

enum BlockReduceAlgorithm {
  BLOCK_REDUCE_RAKING_COMMUTATIVE_ONLY, BLOCK_REDUCE_RAKING, BLOCK_REDUCE_WARP_REDUCTIONS
};

template <class T, int X, BlockReduceAlgorithm = BLOCK_REDUCE_WARP_REDUCTIONS, int Y = 1,
          int Z = 1>
class BlockReduce {
 public:
  struct TempStorage { T cells[X * Y * Z]; };

  explicit BlockReduce(TempStorage &storage) : storage_(storage) {}

  template <class Op>
  T Reduce(T value, Op op, int valid) {
    int rank = cudaemu::this_thread->rank;
    storage_.cells[rank] = value;
    __syncthreads();
    if (rank == 0) {
      for (int k = 1; k < valid; k++) value = op(value, storage_.cells[k]);
    }
    return value;
  }
  template <class Op>
  T Reduce(T value, Op op) { return Reduce(value, op, X * Y * Z); }
  template <int N, class Op>
  T Reduce(T (&values)[N], Op op) {
    T value = values[0];
    for (int k = 1; k < N; k++) value = op(value, values[k]);
    return Reduce(value, op);
  }
  T Sum(T value) { return Reduce(value, cub::Sum()); }
  T Sum(T value, int valid) { return Reduce(value, cub::Sum(), valid); }
  template <int N>
  T Sum(T (&values)[N]) { return Reduce(values, cub::Sum()); }

 private:
  TempStorage &storage_;
};

template <class T, int Width = 32>
class WarpReduce {
 public:
  struct TempStorage { T cells[Width]; };

  explicit WarpReduce(TempStorage &storage) : storage_(storage) {}

  template <class Op>
  T Reduce(T value, Op op, int valid) {
    int lane = cudaemu::this_thread->rank % 32;
    storage_.cells[lane % Width] = value;
    __syncwarp(unsigned((1ull << Width) - 1) << lane / Width * Width);
    if (lane % Width == 0) {
      for (int k = 1; k < valid; k++) value = op(value, storage_.cells[k]);
    }
    return value;
  }
  template <class Op>
  T Reduce(T value, Op op) { return Reduce(value, op, Width); }
  T Sum(T value) { return Reduce(value, cub::Sum()); }
  T Sum(T value, int valid) { return Reduce(value, cub::Sum(), valid); }

 private:
  TempStorage &storage_;
};

}  // namespace cub
