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
int64_t Cache::block_bytes() const { return (int64_t)memories_.size() * kLanes * (2 * head_dim_ * sizeof(int16_t) + 2 * sizeof(float)); }

void Cache::copy_out(int64_t position, uint8_t *block) const {
    const size_t numbers = (size_t)kLanes * head_dim_ * sizeof(int16_t), scales = kLanes * sizeof(float);
    for (const Memory &m : memories_) {
        const int64_t slot = position % m.capacity;
        std::memcpy(block, m.keys + slot * head_dim_, numbers);
        std::memcpy(block + numbers, m.values + slot * head_dim_, numbers);
        std::memcpy(block + 2 * numbers, m.key_scale + slot, scales);
        std::memcpy(block + 2 * numbers + scales, m.value_scale + slot, scales);
        block += 2 * (numbers + scales);
    }
}

void Cache::copy_in(int64_t position, const uint8_t *block, int64_t length) {
    const size_t numbers = (size_t)kLanes * head_dim_ * sizeof(int16_t), scales = kLanes * sizeof(float);
    for (size_t i = 0; i < memories_.size(); i++, block += 2 * (numbers + scales)) {
        const int32_t window = windows_[i / kv_heads_];
        if (window > 0 && position + kLanes <= length - window) continue;
        const Memory &m = memories_[i];
        const int64_t slot = position % m.capacity;
        std::memcpy(m.keys + slot * head_dim_, block, numbers);
        std::memcpy(m.values + slot * head_dim_, block + numbers, numbers);
        std::memcpy(m.key_scale + slot, block + 2 * numbers, scales);
        std::memcpy(m.value_scale + slot, block + 2 * numbers + scales, scales);
    }
}

} // namespace maple
