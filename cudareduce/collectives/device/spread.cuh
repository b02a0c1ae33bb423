// An array that lies on several GPUs: what each GPU's kernel has for an answer is a partial. It is assigned
// to a Spread, by one thread, as an answer would be, and so no kernel has a line more for it: the partial goes
// to every other rank's mail, theirs are waited for, all are combined in the order of ranks, and the answer is
// stored.
//
// Each word of a partial travels beside the number of its call, in one word that arrives whole: who sees the
// number sees the value, and nothing else need be ordered. Calls are counted where the mail lies, and take
// turns between two halves of it. That is enough: a rank sends its partial of call c + 2 when it has those
// of c + 1 from all others, and they have sent these behind reading those of c.
namespace ranks {
extern "C" {
// All ranks, where the mail lies in each window, and which place of the whole array this rank's share begins at.
__constant__ Ranks WINDOWS[1];
__constant__ unsigned long long MAIL[1], BEGIN[1];
}
constexpr unsigned WORDS = (sizeof(Acc) + 3) / 4;

// A partial that knows a place in a share knows it in the array, where the share begins at `begin`.
template <typename Partial> __device__ Partial placed(Partial partial, size_t begin)
{
    if constexpr (INDEXED)
        if (partial.index >= 0)
            partial.index += begin;
    return partial;
}

// The partials of all ranks, combined; called by one thread of each rank.
__device__ Acc exchange(Acc mine)
{
    const Ranks &ranks = WINDOWS[0];
    const Word call = ++*ranks.here<Word>(MAIL[0]);
    const size_t box = MAIL[0] + (1 + call % 2 * RANKS * WORDS) * sizeof(Word);
    unsigned bits[WORDS] = {};
    memcpy(bits, &mine, sizeof(Acc));
    for (unsigned r = 0; r < RANKS; r++)
        for (unsigned w = 0; w < WORDS && r != ranks.me; w++)
            Shared<Word>(ranks.at<Word>(r, box)[ranks.me * WORDS + w])
                .store(call << 32 | bits[w], cuda::std::memory_order_relaxed);
    ranks.stumble();
    Acc total = Op::identity();
    for (unsigned r = 0; r < RANKS; r++) {
        for (unsigned w = 0; w < WORDS && r != ranks.me; w++) {
            Shared<Word> mail(ranks.here<Word>(box)[r * WORDS + w]);
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

struct Spread {
    Result answer;
    __device__ void operator=(Acc partial) { answer = Operator::finish(exchange(placed(partial, BEGIN[0]))); }
};
}
using Out = ranks::Spread;
