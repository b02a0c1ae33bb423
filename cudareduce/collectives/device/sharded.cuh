// Output type of kernels on a sharded array. One thread assigns its partial result to a `Sharded` as it would assign a
// final result, so kernels need no change. The assignment sends the partial result to every other rank's mail, waits
// for theirs, combines all in the order of ranks, and stores the result.
//
// This is NCCL's LL protocol: each 32-bit word travels in one 64-bit store with the number of the call. A 64-bit store
// is atomic, so a reader that sees the number also sees the word, and no fence is needed. A counter in the mail holds
// the number of the call. Two alternating halves of the mail are enough: a rank sends its words of call c + 2 after it
// has received those of c + 1 from all others, which they sent after reading those of c.
namespace ranks {
extern "C" {
// All ranks, the offset of the mail in each window, and the index in the array at which this rank's shard begins.
__constant__ Ranks WINDOWS[1];
__constant__ unsigned long long MAIL[1], BEGIN[1];
}
constexpr unsigned WORDS = (sizeof(Acc) + 3) / 4;

// The partial result with its index in the shard, which begins at `begin`, replaced by the index in the array.
template <typename Partial> __device__ Partial global_index(Partial partial, size_t begin)
{
    if constexpr (INDEXED)
        if (partial.index >= 0)
            partial.index += begin;
    return partial;
}

// Combines the partial results of all ranks; called by one thread of each rank.
__device__ Acc exchange(Acc mine)
{
    const Ranks &ranks = WINDOWS[0];
    const Word call = ++*ranks.here<Word>(MAIL[0]);
    const size_t slots = MAIL[0] + (1 + call % 2 * RANKS * WORDS) * sizeof(Word);
    unsigned bits[WORDS] = {};
    memcpy(bits, &mine, sizeof(Acc));
    for (unsigned r = 0; r < RANKS; r++)
        for (unsigned w = 0; w < WORDS && r != ranks.me; w++)
            Shared<Word>(ranks.at<Word>(r, slots)[ranks.me * WORDS + w])
                .store(call << 32 | bits[w], cuda::std::memory_order_relaxed);
    ranks.delay_if_late();
    Acc total = Op::identity();
    for (unsigned r = 0; r < RANKS; r++) {
        for (unsigned w = 0; w < WORDS && r != ranks.me; w++) {
            Shared<Word> mail(ranks.here<Word>(slots)[r * WORDS + w]);
            Word word = 0;
            ranks.wait(r, [&] {
                word = mail.load(cuda::std::memory_order_relaxed);
                return word >> 32 == (call & 0xffffffffu);
            });
            bits[w] = (unsigned)word;
        }
        Acc theirs;
        memcpy(&theirs, bits, sizeof(Acc));
        if (r == ranks.me)
            theirs = mine;
        total = r == 0 ? theirs : Op::combine(total, theirs);
    }
    return total;
}

struct Sharded {
    Result result;
    __device__ void operator=(Acc partial) { result = Operator::finish(exchange(global_index(partial, BEGIN[0]))); }
};
}
using Out = ranks::Sharded;
