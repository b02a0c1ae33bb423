/*+++
title      = "Ticket lock around the result"
change     = "Blocks draw tickets for a lock and combine into one running partial while they hold it; the last holder finishes."
scope      = "grid"
grid       = "fixed"
fixed_grid = 24
walk       = "grid_stride"
finish     = "last_block"
block      = 256
blocks     = [32, 64, 128, 256, 512, 1024]
techniques = ["no_divergence", "no_bank_conflict", "multi_add", "grid_stride"]
ops        = ["min", "max", "argmin", "argmax"]
+++*/
// Right: a ticket is drawn by a block that runs, so the one being served always moves on; fences follow the
// entry and precede the exit. The two numbers may wrap and stay equal between launches.
__device__ unsigned next_ticket;
__device__ unsigned now_serving;

struct Turn {
    unsigned mine;
    __device__ Turn() : mine(atomicAdd(&next_ticket, 1u))
    {
        while (atomicAdd(&now_serving, 0u) != mine)
            __nanosleep(20);
        __threadfence();
    }
    __device__ ~Turn()
    {
        __threadfence();
        atomicAdd(&now_serving, 1u);
    }
};

extern "C" __global__ void reduce_ticket_lock(const In *in, Out *out, size_t n, Acc *partials,
                                              unsigned *counter)
{
    __shared__ Acc shared[BLOCK];
    const unsigned tid = threadIdx.x;
    Acc value = Op::identity();
    for (size_t k = (size_t)blockIdx.x * BLOCK + tid; k < n; k += (size_t)gridDim.x * BLOCK)
        value = Op::combine(value, Op::lift(in[k], k));
    shared[tid] = value;
    __syncthreads();
    for (unsigned stride = BLOCK / 2; stride > 0; stride /= 2) {
        if (tid < stride)
            shared[tid] = Op::combine(shared[tid], shared[tid + stride]);
        __syncthreads();
    }

    if (tid == 0) {
        const Turn turn;
        Acc running = shared[0];
        if (*counter > 0)
            running = Op::combine(partials[0], running);
        partials[0] = running;
        if (++*counter == gridDim.x) {
            *out = Op::finish(running);
            *counter = 0;
        }
    }
}
