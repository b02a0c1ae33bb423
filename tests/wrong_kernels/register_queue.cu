/*+++
title      = "A queue of eight before each fold"
change     = "A thread collects eight elements and folds them by a small tree of its own, which halves rounding errors."
scope      = "grid"
grid       = "fixed"
fixed_grid = 64
walk       = "grid_stride"
items      = 8
finish     = "relaunch_one_block"
block      = 128
blocks     = [32, 64, 128, 256]
techniques = ["grid_stride", "multi_add"]
+++*/
// Fault: the queue is emptied when it holds more than eight, so its ninth element is written behind the
// array. Whatever lives there in local memory is overwritten; where nothing does, the answer is right.
// Threads with up to eight elements never get that far.
struct Queue {
    Acc held[8];
    unsigned used = 0;
};

__device__ Acc emptied(Queue &queue, Acc value)
{
    for (unsigned j = 0; j < queue.used; j++)
        value = Op::combine(value, queue.held[j]);
    queue.used = 0;
    return value;
}

extern "C" __global__ void register_queue(const In *in, Out *out, size_t n)
{
    __shared__ Acc cells[BLOCK];
    const unsigned tid = threadIdx.x;
    Queue queue;

    Acc value = Op::identity();
    for (size_t k = (size_t)blockIdx.x * BLOCK + tid; k < n; k += (size_t)gridDim.x * BLOCK) {
        queue.held[queue.used++] = Op::lift(in[k], k);
        if (queue.used > 8)
            value = emptied(queue, value);
    }
    cells[tid] = emptied(queue, value);
    __syncthreads();

    for (unsigned s = BLOCK / 2; s > 0; s /= 2) {
        if (tid < s)
            cells[tid] = Op::combine(cells[tid], cells[tid + s]);
        __syncthreads();
    }
    if (tid == 0)
        out[blockIdx.x] = Op::finish(cells[0]);
}
