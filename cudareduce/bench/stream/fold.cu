// What becomes of the answers of chunks: each is kept in its place, and one thread folds all of them
// in the order of chunks, so that every run gives the same bits.

extern "C" __global__ void keep_answer(const In *answer, In *kept, size_t k) { kept[k] = *answer; }

extern "C" __global__ void fold_answers(const In *kept, Out *out, size_t count) {
    Acc total = Op::identity();
    for (size_t k = 0; k < count; ++k) total = Op::combine(total, Op::lift(kept[k], k));
    *out = Op::finish(total);
}
