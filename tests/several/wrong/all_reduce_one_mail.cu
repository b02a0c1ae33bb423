/*+++
title = "x"
change = "x"
expect = "x"
collective = "all-reduce"
block      = 512
mail       = true
+++*/
// One half of mail: a packet is overwritten before it is read.
constexpr unsigned WORDS = (sizeof(In) + 3) / 4;
using Word = unsigned long long;

extern "C" __global__ void __launch_bounds__(BLOCK)
all_reduce_one_mail(size_t in, size_t out, size_t n, size_t, size_t mail, size_t call)
{
    const size_t step = (size_t)gridDim.x * BLOCK, half = n * RANKS * WORDS;
    const size_t turn = mail + 0 * half * sizeof(Word);
    for (size_t i = blockIdx.x * BLOCK + threadIdx.x; i < n; i += step) {
        In values[RANKS];
        unsigned bits[WORDS] = {};
        memcpy(bits, at<In>(RANK[0], in) + i, sizeof(In));
#pragma unroll
        for (unsigned r = 0; r < RANKS; r++)
            for (unsigned w = 0; w < WORDS; w++)
                Shared<Word>(at<Word>(r, turn)[(RANK[0] * WORDS + w) * n + i])
                    .store(call << 32 | bits[w], cuda::std::memory_order_relaxed);
        stumble();
#pragma unroll
        for (unsigned r = 0; r < RANKS; r++) {
            for (unsigned w = 0; w < WORDS; w++) {
                Shared<Word> packet(at<Word>(RANK[0], turn)[(r * WORDS + w) * n + i]);
                Word word = 0;
                wait(r, [&] {
                    word = packet.load(cuda::std::memory_order_relaxed);
                    return word >> 32 == (call & 0xffffffffu);
                });
                bits[w] = (unsigned)word;
            }
            memcpy(&values[r], bits, sizeof(In));
        }
        Acc value = Op::lift(values[0], 0);
#pragma unroll
        for (unsigned r = 1; r < RANKS; r++)
            value = Op::combine(value, Op::lift(values[r], r));
        at<In>(RANK[0], out)[i] = In(Op::finish(value));
    }
}
