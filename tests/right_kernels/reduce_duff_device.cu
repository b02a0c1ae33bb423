/*+++
title      = "Duff's device"
change     = "The loop over a thread's elements is unrolled by eight; a switch jumps into its middle for the remainder."
scope      = "block"
grid       = "one"
walk       = "contiguous"
finish     = "none"
block      = 512
blocks     = [32, 64, 128, 256, 512, 1024]
techniques = ["no_divergence", "no_bank_conflict", "multi_add"]
+++*/
// Right: a thread without elements stays out of the switch, any other takes count % 8 elements (or 8) in
// the first round and 8 in each further one, so count in all.
#define TAKE                                            \
    value = Op::combine(value, Op::lift(in[k], k));     \
    k += BLOCK

extern "C" __global__ void reduce_duff_device(const In *in, Out *out, size_t n)
{
    __shared__ Acc shared[BLOCK];
    const unsigned tid = threadIdx.x;
    const size_t count = tid < n ? (n - tid + BLOCK - 1) / BLOCK : 0;
    Acc value = Op::identity();
    if (count > 0) {
        size_t k = tid, rounds = (count + 7) / 8;
        switch (count % 8) {
        case 0:
            do {
                TAKE;
        case 7: TAKE;
        case 6: TAKE;
        case 5: TAKE;
        case 4: TAKE;
        case 3: TAKE;
        case 2: TAKE;
        case 1: TAKE;
            } while (--rounds > 0);
        }
    }
    shared[tid] = value;
    __syncthreads();

    // The block size is known, so the compiler drops all cases above it.
    switch (BLOCK) {
    case 1024: if (tid < 512) shared[tid] = Op::combine(shared[tid], shared[(tid + 512) % BLOCK]); __syncthreads(); [[fallthrough]];
    case 512:  if (tid < 256) shared[tid] = Op::combine(shared[tid], shared[(tid + 256) % BLOCK]); __syncthreads(); [[fallthrough]];
    case 256:  if (tid < 128) shared[tid] = Op::combine(shared[tid], shared[(tid + 128) % BLOCK]); __syncthreads(); [[fallthrough]];
    case 128:  if (tid < 64)  shared[tid] = Op::combine(shared[tid], shared[(tid + 64) % BLOCK]); __syncthreads(); [[fallthrough]];
    case 64:   if (tid < 32)  shared[tid] = Op::combine(shared[tid], shared[(tid + 32) % BLOCK]); __syncthreads(); [[fallthrough]];
    default:
        for (unsigned stride = 16; stride > 0; stride /= 2) {
            if (tid < stride)
                shared[tid] = Op::combine(shared[tid], shared[tid + stride]);
            __syncthreads();
        }
    }
    if (tid == 0)
        *out = Op::finish(shared[0]);
}
