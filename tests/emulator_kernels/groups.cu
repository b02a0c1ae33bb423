// What threads of a group do together, each kernel with its answer in out.
#include <cooperative_groups.h>
#include <cooperative_groups/memcpy_async.h>
#include <cooperative_groups/reduce.h>
#include <cooperative_groups/scan.h>
#include <cuda/atomic>
#include <cuda/barrier>
#include <cuda/latch>
#include <cuda/pipeline>
#include <cuda/semaphore>
#include <cuda_fp16.h>
#include <cuda_pipeline.h>
#include <new>
namespace cg = cooperative_groups;

// Columns of out: one answer each, for 256 threads.
template <unsigned SIZE>
__device__ void tile(int *out, int column)
{
    const auto block = cg::this_thread_block();
    const auto tile = cg::tiled_partition<SIZE>(block);
    const int t = threadIdx.x;
    int *mine = out + 8 * (256 * column + t);
    mine[0] = (int)(100 * tile.meta_group_rank() + tile.thread_rank());
    mine[1] = cg::reduce(tile, t, cg::plus<int>());
    mine[2] = cg::inclusive_scan(tile, t);
    mine[3] = cg::exclusive_scan(tile, t, cg::plus<int>());
    mine[4] = tile.any(t == 77);
    mine[5] = tile.all(t < 64);
    mine[6] = tile.shfl(t, 1 % SIZE);
    mine[7] = (int)tile.meta_group_size();
}

extern "C" __global__ void tiles(int *out)
{
    tile<4>(out, 0);
    tile<32>(out, 1);
    tile<64>(out, 2);
    tile<128>(out, 3);
    tile<256>(out, 4);
}

extern "C" __global__ void coalesced(int *out)
{
    const int t = threadIdx.x;
    int *mine = out + 10 * t;
    for (int k = 0; k < 10; k++)
        mine[k] = -1;
    if (t % 3 == 0) {
        const cg::coalesced_group group = cg::coalesced_threads();
        mine[0] = (int)group.size();
        mine[1] = (int)group.thread_rank();
        mine[2] = cg::reduce(group, t, cg::greater<int>());
        mine[3] = group.shfl(t, 2);
        mine[4] = group.shfl_down(t, 1);
        mine[5] = cg::exclusive_scan(group, t);
        mine[6] = (int)group.ballot(t % 2);
        const cg::coalesced_group three = cg::tiled_partition(group, 4);
        mine[7] = cg::reduce(three, t, cg::plus<int>());
    } else {
        const cg::coalesced_group group = cg::coalesced_threads();
        mine[0] = (int)group.size();
        const cg::coalesced_group part = cg::binary_partition(group, t % 3 == 1);
        mine[8] = cg::reduce(part, t, cg::plus<int>());
        const cg::coalesced_group same = cg::labeled_partition(group, t % 4);
        mine[9] = (int)(100 * same.meta_group_size() + same.size());
    }
}

extern "C" __global__ void any_group(int *out)
{
    const cg::thread_group block = cg::this_thread_block();
    const cg::thread_group eight = cg::tiled_partition(block, 8);
    __shared__ int cells[64];
    const int t = threadIdx.x;
    cells[t] = t;
    block.sync();
    const int other = cells[63 - t];
    int *mine = out + 4 * t;
    mine[0] = other;
    mine[1] = (int)(10 * eight.thread_rank() + eight.size());
    mine[2] = (int)(cg::this_grid().thread_rank() + cg::this_grid().size());
    mine[3] = cg::invoke_one_broadcast(cg::tiled_partition<16>(cg::this_thread_block()),
                                       [&] { return t; });
}

extern "C" __global__ void matches(unsigned *out)
{
    const int t = threadIdx.x;
    int all_same;
    out[3 * t] = __match_any_sync(0xffffffffu, t % 5);
    out[3 * t + 1] = __match_all_sync(0xffffffffu, 2.5, &all_same) + all_same;
    out[3 * t + 2] = __match_all_sync(0xffffffffu, (long long)t, &all_same) + all_same;
}

// Each waits for what it has asked for: an increment.
extern "C" __global__ void copies_of_a_group(const int *in, int *out)
{
    __shared__ alignas(16) int tiles[2][64];
    const auto block = cg::this_thread_block();
    cg::memcpy_async(block, tiles[0], in, sizeof(int) * 64);
    cg::memcpy_async(block, tiles[1], in + 64, cuda::aligned_size_t<16>(sizeof(int) * 64));
    cg::wait_prior<1>(block);
    const int first = tiles[0][63 - threadIdx.x];
    cg::wait(block);
    out[threadIdx.x] = first + tiles[1][63 - threadIdx.x];
}

extern "C" __global__ void copies_without_wait(const int *in, int *out)
{
    __shared__ int tile[64];
    __pipeline_memcpy_async(&tile[threadIdx.x], in + threadIdx.x, 4);
    __pipeline_commit();
    __syncthreads();
    out[threadIdx.x] = tile[threadIdx.x];
}

extern "C" __global__ void copies_of_a_thread(const int *in, int *out)
{
    __shared__ int tile[64];
    __pipeline_memcpy_async(&tile[threadIdx.x], in + threadIdx.x, 4);
    __pipeline_commit();
    __pipeline_wait_prior(0);
    __syncthreads();
    out[threadIdx.x] = tile[63 - threadIdx.x];
}

extern "C" __global__ void copies_of_a_pipeline(const int *in, int *out)
{
    __shared__ int stages[2][64];
    __shared__ cuda::pipeline_shared_state<cuda::thread_scope_block, 2> state;
    const auto block = cg::this_thread_block();
    auto pipe = cuda::make_pipeline(block, &state);
    int sum = 0;
    for (int step = 0; step < 6; step++) {
        if (step < 5) {
            pipe.producer_acquire();
            cuda::memcpy_async(block, stages[step % 2], in + 64 * (step % 2), sizeof(int) * 64, pipe);
            pipe.producer_commit();
        }
        if (step > 0) {
            pipe.consumer_wait();
            sum += stages[(step - 1) % 2][63 - threadIdx.x];
            pipe.consumer_release();
        }
    }
    out[threadIdx.x] = sum;
}

extern "C" __global__ void barriers(const int *in, int *out)
{
    __shared__ int cells[64];
    __shared__ int tile[64];
    __shared__ cuda::barrier<cuda::thread_scope_block> barrier;
    const unsigned t = threadIdx.x;
    if (t == 0)
        init(&barrier, blockDim.x);
    __syncthreads();
    cells[t] = in[t];
    cuda::memcpy_async(&tile[t], in + t, sizeof(int), barrier);
    auto token = barrier.arrive();
    barrier.wait(std::move(token));
    int sum = cells[63 - t] + tile[63 - t];
    barrier.arrive_and_wait();
    cells[t] = 1;
    if (t >= 32) {
        barrier.arrive_and_drop();
        return;
    }
    barrier.arrive_and_wait();
    out[t] = sum + cells[t + 32];
    barrier.arrive_and_wait();
}

extern "C" __global__ void barrier_missed(const int *in, int *out)
{
    __shared__ int cells[64];
    __shared__ cuda::barrier<cuda::thread_scope_block> barrier;
    const unsigned t = threadIdx.x;
    if (t == 0)
        init(&barrier, blockDim.x);
    __syncthreads();
    cells[t] = in[t];  // hazard
    (void)barrier.arrive();
    out[t] = cells[63 - t];  // hazard
}

// The numbers 1 to 64, handed from thread to thread.
extern "C" __global__ void atomics_of_the_library(int *out, unsigned short *shorts)
{
    __shared__ cuda::atomic<int, cuda::thread_scope_block> sum;
    __shared__ cuda::atomic<unsigned> most;
    __shared__ int turn;
    using Latch = cuda::latch<cuda::thread_scope_block>;
    __shared__ alignas(Latch) unsigned char place_of_latch[sizeof(Latch)];
    Latch &latch = *reinterpret_cast<Latch *>(place_of_latch);
    __shared__ cuda::binary_semaphore<cuda::thread_scope_block> semaphore;
    __shared__ int guarded;
    const int t = threadIdx.x;
    if (t == 0) {
        sum.store(0, cuda::memory_order_relaxed);
        most = 0;
        turn = guarded = 0;
        new (&latch) Latch(64);
        new (&semaphore) cuda::binary_semaphore<cuda::thread_scope_block>(1);
    }
    __syncthreads();
    sum.fetch_add(t + 1);
    most.fetch_max(t);
    cuda::atomic_ref<int, cuda::thread_scope_block> mine(turn);
    while (mine.load(cuda::memory_order_acquire) != t) __nanosleep(10);
    out[4] = t;  // handed over by the turn
    mine.store(t + 1, cuda::memory_order_release);
    semaphore.acquire();
    guarded += t;
    semaphore.release();
    cuda::atomic_ref<unsigned short>(shorts[1]).fetch_add(3);
    unsigned short seen = shorts[0], next;
    do {
        next = seen;
        seen = atomicCAS(&shorts[0], next, (unsigned short)(next + 2));
    } while (seen != next);
    latch.arrive_and_wait();
    if (t == 5) {
        out[0] = sum;
        out[1] = (int)most.load();
        out[2] = guarded;
        int expected = 65;
        out[3] = 10 * mine.compare_exchange_strong(expected, 1) + (expected == 64);
    }
}

extern "C" __global__ void half_atomics(__half *halves, __half2 *pairs, float4 *four)
{
    atomicAdd(halves + 1, __half(0.5f));
    atomicAdd(pairs, __half2(1.0f, 0.25f));
    atomicAdd(four, make_float4(1, 2, 3, 4));
}
