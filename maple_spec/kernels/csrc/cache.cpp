// Memory for keys and values: reserved whole at once, taken from the system as it is first written.
#include <sys/mman.h>

#include <new>

#include "model.h"

namespace maple {

Cache::Cache(const Description &d, int64_t context_) : context(context_), kv_heads_(d.kv_heads) {
    const auto capacity_of = [&](const Layer &layer) {
        const int64_t wanted = layer.window > 0 ? layer.window + d.chunk + kLanes : context_;
        return rounded_up(wanted < context_ ? wanted : context_, kLanes);
    };
    const auto bytes_of = [&](int64_t capacity) { return rounded_up(capacity * d.head_dim * 4 + capacity * 8, 64); };
    for (int i = 0; i < d.layers; i++) size_ += (size_t)bytes_of(capacity_of(d.layer[i])) * d.kv_heads;
    block_ = mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (block_ == MAP_FAILED) throw std::bad_alloc();
#ifdef MADV_HUGEPAGE
    madvise(block_, size_, MADV_HUGEPAGE);
#endif
    uint8_t *at = (uint8_t *)block_;
    for (int i = 0; i < d.layers; i++)
        for (int head = 0; head < d.kv_heads; head++) {
            const int64_t capacity = capacity_of(d.layer[i]), numbers = capacity * d.head_dim;
            int16_t *keys = (int16_t *)at, *values = keys + numbers;
            float *key_scale = (float *)(values + numbers);
            memories_.push_back({keys, key_scale, values, key_scale + capacity, capacity});
            at += bytes_of(capacity);
        }
}

Cache::~Cache() { munmap(block_, size_); }

} // namespace maple
