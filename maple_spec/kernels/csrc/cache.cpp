// Memory for keys and values: reserved whole at once, taken from the system as it is first written.
#include <sys/mman.h>

#include <cstring>
#include <new>

#include "model.h"

namespace maple {

Cache::Cache(const Description &d, int64_t context_) : context(context_), kv_heads_(d.kv_heads), head_dim_(d.head_dim) {
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
    for (int i = 0; i < d.layers; i++) {
        windows_.push_back(d.layer[i].window);
        for (int head = 0; head < d.kv_heads; head++) {
            const int64_t capacity = capacity_of(d.layer[i]), numbers = capacity * d.head_dim;
            int16_t *keys = (int16_t *)at, *values = keys + numbers;
            float *key_scale = (float *)(values + numbers);
            memories_.push_back({keys, key_scale, values, key_scale + capacity, capacity});
            at += bytes_of(capacity);
        }
    }
}

Cache::~Cache() { munmap(block_, size_); }

// In a block, for each memory: keys, values, scales of keys, scales of values.
static size_t bytes_of_block(int dim) { return kLanes * (2 * dim * sizeof(int16_t) + 2 * sizeof(float)); }

// Calls copy(where the memory keeps a piece, where the block does, its bytes).
template <class Byte, class Copy> static void each_piece(const Memory &m, int dim, int64_t position, Byte *block, Copy copy) {
    const size_t numbers = (size_t)kLanes * dim * sizeof(int16_t), scales = kLanes * sizeof(float);
    const int64_t slot = position % m.capacity;
    copy(m.keys + slot * dim, block, numbers);
    copy(m.values + slot * dim, block + numbers, numbers);
    copy(m.key_scale + slot, block + 2 * numbers, scales);
    copy(m.value_scale + slot, block + 2 * numbers + scales, scales);
}

int64_t Cache::block_bytes() const { return (int64_t)(memories_.size() * bytes_of_block(head_dim_)); }

void Cache::copy_out(int64_t position, uint8_t *block) const {
    for (const Memory &m : memories_) {
        each_piece(m, head_dim_, position, block, [](const void *kept, uint8_t *to, size_t size) { std::memcpy(to, kept, size); });
        block += bytes_of_block(head_dim_);
    }
}

void Cache::copy_in(int64_t position, const uint8_t *block, int64_t length) {
    for (size_t i = 0; i < memories_.size(); i++, block += bytes_of_block(head_dim_)) {
        const int32_t window = windows_[i / kv_heads_];
        if (window > 0 && position + kLanes <= length - window) continue;
        each_piece(memories_[i], head_dim_, position, block,
                   [](void *kept, const uint8_t *from, size_t size) { std::memcpy(kept, from, size); });
    }
}

} // namespace maple
