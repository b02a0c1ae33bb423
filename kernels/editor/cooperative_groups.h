// What an editor must know of CUDA's <cooperative_groups.h> to parse a kernel; see editor.h. nvcc has its own.
#ifndef CUDAREDUCE_EDITOR_COOPERATIVE_GROUPS
#define CUDAREDUCE_EDITOR_COOPERATIVE_GROUPS
namespace cooperative_groups {
struct cluster_group {
    __device__ void barrier_arrive() const;
    __device__ void barrier_wait() const;
    __device__ void sync() const;
    template <class T> __device__ T *map_shared_rank(T *address, unsigned rank) const;
};
__device__ cluster_group this_cluster();
}
#endif
