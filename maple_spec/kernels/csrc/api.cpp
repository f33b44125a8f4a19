// The C interface that the binding in native.py calls: no arithmetic, no checks, which are Python's.
#include <cstring>
#include <new>

#include "model.h"
#include "team.h"

#define API extern "C" __attribute__((visibility("default")))

using namespace maple;

static const Kernels *variant_of(const char *name) {
    using Maker = const Kernels *(*)();
    static const struct {
        const char *name;
        Maker make;
    } known[] = {
#ifdef MAPLE_X86
        {"avx512", avx512_kernels},
        {"avx2", avx2_kernels},
#endif
#ifdef MAPLE_NEON
        {"neon", neon_kernels},
#endif
        {"plain", plain_kernels},
    };
    for (const auto &variant : known)
        if (!std::strcmp(variant.name, name)) return variant.make();
    return nullptr;
}

// The variants that this processor runs, best first, separated by commas.
API const char *maple_variants() {
#ifdef MAPLE_X86
    __builtin_cpu_init();
    const bool wide = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    if (wide && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512vnni"))
        return "avx512,avx2,plain";
    if (wide) return "avx2,plain";
#endif
#ifdef MAPLE_NEON
    return "neon,plain"; // NEON is compiled for processors that have the dot product instructions
#endif
    return "plain";
}

API Model *maple_model_new(const Description *description, const char *variant) {
    try {
        return new Model(*description, *variant_of(variant));
    } catch (const std::bad_alloc &) {
        return nullptr;
    }
}

API void maple_model_free(Model *model) { delete model; }

API Cache *maple_cache_new(const Model *model, int64_t context) {
    try {
        return new Cache(model->description, context);
    } catch (const std::bad_alloc &) {
        return nullptr;
    }
}

API void maple_cache_free(Cache *cache) { delete cache; }

API void maple_cache_interrupt(Cache *cache) { cache->interrupted.store(true); }

API void maple_cache_reset(Cache *cache) {
    cache->length = 0;
    cache->interrupted.store(false);
}

API int64_t maple_cache_block_bytes(const Cache *cache) { return cache->block_bytes(); }

API int maple_cache_interrupted(const Cache *cache) { return cache->interrupted.load(); }

API void maple_cache_copy_out(const Cache *cache, int64_t position, uint8_t *block) { cache->copy_out(position, block); }

// The blocks of the positions from 0 on, as many as there are addresses; the sequence goes on behind them.
API void maple_cache_copy_in(Cache *cache, uint8_t *const *blocks, int64_t count) {
    for (int64_t i = 0; i < count; i++) cache->copy_in(i * kLanes, blocks[i], count * kLanes);
    cache->length = count * kLanes;
}

API void maple_forward(Model *model, Cache *cache, const int32_t *token_ids, int count, float *logits, int every) {
    model->forward(*cache, token_ids, count, logits, every != 0);
}

// For measurements: stand at a position as if that many tokens had been seen, and read memory as fast as the threads can.
API void maple_cache_seek(Cache *cache, int64_t position) { cache->length = position; }

API uint32_t maple_read(const char *variant, const uint8_t *memory, int64_t size, int threads) {
    const Kernels &kernels = *variant_of(variant);
    std::atomic<uint32_t> sum{0};
    run_team(threads, [&](Team &team) {
        const int64_t blocks = size / 256, begin = team.begin(blocks) * 256, end = team.end(blocks) * 256;
        sum += kernels.read_all(memory + begin, end - begin);
    });
    return sum;
}

// The functions of a variant, which tests call one by one.
API const Kernels *maple_kernels(const char *variant) { return variant_of(variant); }
