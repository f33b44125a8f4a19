// The float kernels, written once over vectors of 16 lanes; each instruction set's file includes this and gets its own copy.
//
// Sums run over the lanes in a fixed order and
// are folded by a fixed tree, so that a result never depends on how many threads or tokens there are.
// The file defines before it includes this: kRegister, the bytes of a register, and kSums, how many vectors of sums all of them hold.
#pragma once

#include <cmath>
#include <cstring>

#include "maple.h"

namespace maple {
namespace {

// 16 numbers in as many registers as they need. Vectors wider than a register would do for the compiler too, but it takes them
// apart through memory.
template <class T> struct Vector {
    typedef T Part __attribute__((vector_size(kRegister)));
    static constexpr int kParts = kLanes * sizeof(T) / kRegister, kPartLanes = kLanes / kParts;
    Part part[kParts];
};

typedef Vector<float> Floats;
typedef Vector<int32_t> Ints;
typedef Vector<uint32_t> Words;

template <class T> struct Itself {
    typedef T type;
};

#define MAPLE_OPERATOR(op)                                                                                                      \
    template <class T> inline Vector<T> operator op(Vector<T> a, Vector<T> b) {                                                 \
        for (int i = 0; i < a.kParts; i++) a.part[i] = a.part[i] op b.part[i];                                                  \
        return a;                                                                                                               \
    }                                                                                                                           \
    template <class T> inline Vector<T> operator op(Vector<T> a, typename Itself<T>::type b) {                                  \
        for (int i = 0; i < a.kParts; i++) a.part[i] = a.part[i] op b;                                                          \
        return a;                                                                                                               \
    }                                                                                                                           \
    template <class T> inline Vector<T> operator op(typename Itself<T>::type a, Vector<T> b) {                                  \
        for (int i = 0; i < b.kParts; i++) b.part[i] = a op b.part[i];                                                          \
        return b;                                                                                                               \
    }
MAPLE_OPERATOR(+)
MAPLE_OPERATOR(-)
MAPLE_OPERATOR(*)
MAPLE_OPERATOR(/)
MAPLE_OPERATOR(&)
MAPLE_OPERATOR(<<)
MAPLE_OPERATOR(>>)
#undef MAPLE_OPERATOR

template <class T> inline void operator+=(Vector<T> &a, Vector<T> b) { a = a + b; }

inline Floats operator-(Floats v) {
    for (auto &part : v.part) part = -part;
    return v;
}

template <class T> inline Vector<T> spread(T value) { return value - Vector<T>{}; }

// All bits of a lane where a > b, else none.
template <class T> inline Ints above(Vector<T> a, Vector<T> b) {
    Ints mask;
    for (int i = 0; i < a.kParts; i++) mask.part[i] = a.part[i] > b.part[i];
    return mask;
}

// a where the mask has bits, else b.
inline Floats chosen(Ints mask, Floats a, Floats b) {
    for (int i = 0; i < a.kParts; i++) a.part[i] = mask.part[i] ? a.part[i] : b.part[i];
    return a;
}

template <class To, class From> inline To same_bits(From from) {
    To to;
    for (int i = 0; i < to.kParts; i++) to.part[i] = (typename To::Part)from.part[i];
    return to;
}

inline Floats to_floats(Ints v) {
    Floats to;
    for (int i = 0; i < to.kParts; i++) to.part[i] = __builtin_convertvector(v.part[i], Floats::Part);
    return to;
}

inline Ints to_ints(Floats v) {
    Ints to;
    for (int i = 0; i < to.kParts; i++) to.part[i] = __builtin_convertvector(v.part[i], Ints::Part);
    return to;
}

template <class Vector> inline Vector load(const void *from) {
    Vector vector; // register by register: copied as a whole it would stay in memory
    for (int i = 0; i < vector.kParts; i++) std::memcpy(&vector.part[i], (const char *)from + i * kRegister, kRegister);
    return vector;
}

template <class T> inline void store(T *to, Vector<T> vector) {
    for (int i = 0; i < vector.kParts; i++) std::memcpy((char *)to + i * kRegister, &vector.part[i], kRegister);
}

// 16 narrow numbers, widened.
template <class To, class T> inline To widened(const T *from) {
    typedef T Narrow __attribute__((vector_size(To::kPartLanes * sizeof(T))));
    To to;
    for (int i = 0; i < to.kParts; i++) {
        Narrow narrow;
        std::memcpy(&narrow, from + i * to.kPartLanes, sizeof narrow);
        to.part[i] = __builtin_convertvector(narrow, typename To::Part);
    }
    return to;
}

// The lowest bits of each.
template <class T> inline void store_narrow(T *to, Ints v) {
    typedef T Narrow __attribute__((vector_size(Ints::kPartLanes * sizeof(T))));
    for (int i = 0; i < v.kParts; i++) {
        const Narrow narrow = __builtin_convertvector(v.part[i], Narrow);
        std::memcpy(to + i * v.kPartLanes, &narrow, sizeof narrow);
    }
}

inline Floats from_shorts(const int16_t *from) { return to_floats(widened<Ints>(from)); }
inline Floats from_bfloat16(const uint16_t *from) { return same_bits<Floats>(widened<Words>(from) << 16); }

inline float fold_sum(Floats v) {
    float a[kLanes];
    store(a, v);
    for (int step = kLanes / 2; step > 0; step /= 2)
        for (int i = 0; i < step; i++) a[i] += a[i + step];
    return a[0];
}

inline float fold_max(Floats v) {
    float a[kLanes];
    store(a, v);
    for (int step = kLanes / 2; step > 0; step /= 2)
        for (int i = 0; i < step; i++) a[i] = a[i] > a[i + step] ? a[i] : a[i + step];
    return a[0];
}

inline Floats larger(Floats a, Floats b) { return chosen(above(a, b), a, b); }
inline Floats smaller(Floats a, Floats b) { return chosen(above(b, a), a, b); }

// e^x to about 2 units in the last place: x = n ln 2 + f, a polynomial in f, and n added to the exponent.
__attribute__((always_inline)) inline Floats exponential(Floats x) {
    x = smaller(larger(x, spread(-87.0f)), spread(88.0f));
    const float round_to_integer = 12582912.0f; // 1.5 * 2^23: what is added to it loses its fraction
    Floats n = (x * 1.44269504f + round_to_integer) - round_to_integer;
    Floats f = x - n * 0.693145752f - n * 1.42860677e-6f;
    Floats p = spread(1.0f / 5040);
    p = p * f + 1.0f / 720;
    p = p * f + 1.0f / 120;
    p = p * f + 1.0f / 24;
    p = p * f + 1.0f / 6;
    p = p * f + 0.5f;
    p = p * f + 1.0f;
    p = p * f + 1.0f;
    return p * same_bits<Floats>((to_ints(n) + 127) << 23);
}

inline float root_mean_square(const float *x, int size, float eps) {
    Floats sum = {};
    for (int i = 0; i < size; i += kLanes) {
        Floats v = load<Floats>(x + i);
        sum += v * v;
    }
    return std::sqrt(fold_sum(sum) / (float)size + eps);
}

void norm(const float *x, const float *weight, int size, float eps, float *out) {
    const float factor = 1.0f / root_mean_square(x, size, eps);
    for (int i = 0; i < size; i += kLanes) store(out + i, load<Floats>(x + i) * factor * load<Floats>(weight + i));
}

void norm_and_turn(const float *x, const float *gain, int size, float eps, const float *cos, const float *sin, int half,
                   float factor, float *out) {
    const float scale = 1.0f / root_mean_square(x, size, eps);
    for (int i = 0; i < size; i += kLanes) store(out + i, load<Floats>(x + i) * scale * load<Floats>(gain + i) * factor);
    for (int i = 0; i < half; i++) {
        const float a = out[i], b = out[i + half];
        out[i] = a * cos[i] - b * sin[i];
        out[i + half] = b * cos[i] + a * sin[i];
    }
}

inline float largest_magnitude(const float *x, int size) {
    Floats most = {};
    for (int i = 0; i < size; i += kLanes) {
        Floats v = load<Floats>(x + i);
        most = larger(most, larger(v, -v));
    }
    return fold_max(most);
}

// v, rounded to float32 before it is used: a product in it is not fused with a sum that follows. Then numbers that are rounded
// to integers come out alike on processors that fuse and on those that do not.
inline Floats settled(Floats v) {
#if defined(__x86_64__)
    for (auto &part : v.part) asm("" : "+v"(part));
#elif defined(__aarch64__)
    for (auto &part : v.part) asm("" : "+w"(part));
#endif
    return v;
}

// To the nearest integer, halves to even.
inline Ints nearest(Floats x) {
    x = settled(x);
    const float round_to_integer = 12582912.0f;
    return to_ints((x + round_to_integer) - round_to_integer);
}

// Fixed point: 16 values at a time, each as one digit or as two, handed to keep(place in x, high digit, low digit).
template <class Keep> inline float fixed_point(const float *x, int size, int planes, Keep keep) {
    const float most = largest_magnitude(x, size), last = planes == 2 ? 32512.0f : 127.0f;
    const float step = most > 0 ? most / last : 1.0f, inverse = 1.0f / step;
    for (int i = 0; i < size; i += kLanes) {
        const Ints q = nearest(load<Floats>(x + i) * inverse);
        const Ints high = planes == 2 ? (q + 128) >> 8 : q;
        keep(i, q, high, q - high * 256);
    }
    return step;
}

inline int32_t fold_sum(Ints v) {
    int32_t a[kLanes], sum = 0;
    store(a, v);
    for (int32_t value : a) sum += value;
    return sum;
}

// Columns of a block in the order of the codes' fields: a transpose of four by four.
inline void store_by_field(int8_t *to, Ints v) {
    typedef int8_t Digits __attribute__((vector_size(16)));
    Digits digits;
    store_narrow((int8_t *)&digits, v);
    digits = __builtin_shufflevector(digits, digits, 0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    std::memcpy(to, &digits, sizeof digits);
}

void quantise(const float *x, int columns, int planes, int8_t *digits, float *scale, int32_t *sum) {
    Ints total = {};
    *scale = fixed_point(x, columns, planes, [&](int i, Ints q, Ints high, Ints low) {
        total += q;
        store_by_field(digits + i, high);
        if (planes == 2) store_by_field(digits + columns + i, low);
    });
    *sum = fold_sum(total);
}

void quantise_plain(const float *x, int columns, int group_size, int planes, int8_t *digits, float *scale, int32_t *sums) {
    for (int g = 0; g < columns / group_size; g++) sums[g] = 0;
    *scale = fixed_point(x, columns, planes, [&](int i, Ints q, Ints high, Ints low) {
        sums[i / group_size] += fold_sum(q);
        store_narrow(digits + i, high);
        if (planes == 2) store_narrow(digits + columns + i, low);
    });
}

void finish(const int32_t *sums, int planes, float scale, int32_t sum, const float *row_scale, float *y) {
    for (int r = 0; r < kGroupRows; r += kLanes) {
        Ints total = load<Ints>(sums + r);
        if (planes == 2) total = total * 256 + load<Ints>(sums + kGroupRows + r);
        store(y + r, to_floats(total - sum) * scale * load<Floats>(row_scale + r));
    }
}

template <int Vectors>
void bfloat16_rows_of(const uint16_t *weights, int count, int columns, const float *x, float *y, int y_stride) {
    for (int r = 0; r < count; r++, weights += columns) {
        Floats even[Vectors] = {}, odd[Vectors] = {};
        int k = 0;
        for (; k + 2 * kLanes <= columns; k += 2 * kLanes) {
            const Floats a = from_bfloat16(weights + k), b = from_bfloat16(weights + k + kLanes);
#pragma GCC unroll 4
            for (int v = 0; v < Vectors; v++) {
                even[v] += a * load<Floats>(x + v * columns + k);
                odd[v] += b * load<Floats>(x + v * columns + k + kLanes);
            }
        }
        for (int v = 0; v < Vectors; v++) {
            if (k < columns) even[v] += from_bfloat16(weights + k) * load<Floats>(x + v * columns + k);
            y[v * y_stride + r] = fold_sum(even[v] + odd[v]);
        }
    }
}

void bfloat16_rows(const uint16_t *weights, int count, int columns, int vectors, const float *x, float *y, int y_stride) {
    constexpr int kAtOnce = kSums / 2;
    for (; vectors >= kAtOnce; vectors -= kAtOnce, x += kAtOnce * columns, y += kAtOnce * y_stride)
        bfloat16_rows_of<kAtOnce>(weights, count, columns, x, y, y_stride);
    for (; vectors > 0; vectors--, x += columns, y += y_stride) bfloat16_rows_of<1>(weights, count, columns, x, y, y_stride);
}

void remember(const Memory *memory, int dim, int64_t position, const float *key, const float *value) {
    const int64_t slot = position % memory->capacity;
    const float last = 32767.0f;
    const float most_key = largest_magnitude(key, dim), most_value = largest_magnitude(value, dim);
    const float key_step = most_key > 0 ? most_key / last : 1.0f, value_step = most_value > 0 ? most_value / last : 1.0f;
    int16_t *keys = memory->keys + (slot / kLanes) * dim * kLanes + slot % kLanes;
    int16_t *values = memory->values + slot * dim;
    for (int i = 0; i < dim; i += kLanes) {
        int32_t q[kLanes];
        store(q, nearest(load<Floats>(key + i) * (1.0f / key_step)));
        for (int j = 0; j < kLanes; j++) keys[(i + j) * kLanes] = (int16_t)q[j];
        store_narrow(values + i, nearest(load<Floats>(value + i) * (1.0f / value_step)));
    }
    memory->key_scale[slot] = key_step;
    memory->value_scale[slot] = value_step;
}

// Scores of `Count` queries against one block of 16 positions.
template <int Count>
inline void score_block(const int16_t *keys, int dim, const float *queries, Floats *scores) {
    constexpr int kAtOnce = Count < kSums ? Count : kSums;
    for (int first = 0; first < Count; first += kAtOnce, queries += kAtOnce * dim) {
        Floats sum[kAtOnce] = {};
        for (int d = 0; d < dim; d++) {
            const Floats key = from_shorts(keys + d * kLanes);
#pragma GCC unroll 8
            for (int i = 0; i < kAtOnce; i++) sum[i] += key * queries[i * dim + d];
        }
#pragma GCC unroll 8
        for (int i = 0; i < kAtOnce; i++) scores[first + i] = sum[i];
    }
}

// out [Count][16 Parts] = the weighted sum of that part of all blocks' values; weights hold 16 floats a block for each query.
template <int Count, int Parts>
inline void mix_parts(const Memory *memory, int dim, int64_t first_block, int64_t blocks, const float *weights, int64_t stride,
                      int d, float *out) {
    const int64_t ring = memory->capacity / kLanes;
    Floats sum[Count][Parts] = {};
    for (int64_t b = 0; b < blocks; b++) {
        const int16_t *values = memory->values + ((first_block + b) % ring) * kLanes * dim + d;
        for (int p = 0; p < kLanes; p++, values += dim) {
#pragma GCC unroll 4
            for (int part = 0; part < Parts; part++) {
                const Floats value = from_shorts(values + part * kLanes);
#pragma GCC unroll 4
                for (int i = 0; i < Count; i++) sum[i][part] += value * weights[i * stride + b * kLanes + p];
            }
        }
    }
#pragma GCC unroll 4
    for (int i = 0; i < Count; i++)
#pragma GCC unroll 4
        for (int part = 0; part < Parts; part++) store(out + i * dim + d + part * kLanes, sum[i][part]);
}

// The same for all of a head's dimensions: out [Count][dim].
template <int Count>
inline void mix_values(const Memory *memory, int dim, int64_t first_block, int64_t blocks, const float *weights, int64_t stride,
                       float *out) {
    constexpr int kParts = kSums / Count;
    int d = 0;
    for (; d + kParts * kLanes <= dim; d += kParts * kLanes)
        mix_parts<Count, kParts>(memory, dim, first_block, blocks, weights, stride, d, out);
    for (; d < dim; d += kLanes) mix_parts<Count, 1>(memory, dim, first_block, blocks, weights, stride, d, out);
}

template <int Count>
void attend_count(const Memory *memory, int dim, const float *queries, const int64_t *first, const int64_t *last, float *scores,
                  float *out) {
    const int64_t ring = memory->capacity / kLanes;
    int64_t begin = first[0], end = last[0];
    for (int i = 1; i < Count; i++) {
        begin = first[i] < begin ? first[i] : begin;
        end = last[i] > end ? last[i] : end;
    }
    const int64_t first_block = begin / kLanes, blocks = end / kLanes - first_block + 1, stride = blocks * kLanes;
    const int32_t count[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    const Ints lane = load<Ints>(count);
    Floats most[Count];
    for (int i = 0; i < Count; i++) most[i] = spread(-INFINITY);
    for (int64_t b = 0; b < blocks; b++) {
        const int64_t slot = (first_block + b) % ring;
        Floats block[Count];
        score_block<Count>(memory->keys + slot * dim * kLanes, dim, queries, block);
        const Floats scale = load<Floats>(memory->key_scale + slot * kLanes);
        const int64_t position = (first_block + b) * kLanes;
        for (int i = 0; i < Count; i++) {
            Floats s = block[i] * scale;
            // Slots outside a query's range hold other positions or nothing yet: whatever they hold, it counts for nothing.
            const int64_t low = first[i] - position, high = last[i] - position;
            if (low > 0 || high < kLanes - 1) {
                const Ints inside = above(lane, spread((int32_t)(low < 0 ? -1 : low > kLanes ? kLanes : low - 1))) &
                                    above(spread((int32_t)(high < 0 ? 0 : high > kLanes ? kLanes : high + 1)), lane);
                s = chosen(inside, s, spread(-INFINITY));
            }
            store(scores + i * stride + b * kLanes, s);
            most[i] = larger(most[i], s);
        }
    }
    float share[Count];
    for (int i = 0; i < Count; i++) {
        const float top = fold_max(most[i]);
        Floats total = {};
        for (int64_t b = 0; b < blocks; b++) {
            float *at = scores + i * stride + b * kLanes;
            // What is e^50 times less than the best counts for nothing in float32, and as a denormal number it would cost most.
            const Floats behind = load<Floats>(at) - top;
            const Floats weight = chosen(above(behind, spread(-50.0f)), exponential(behind), Floats{});
            total += weight;
            const Floats scale = load<Floats>(memory->value_scale + ((first_block + b) % ring) * kLanes);
            store(at, chosen(above(weight, Floats{}), weight * scale, Floats{}));
        }
        share[i] = 1.0f / fold_sum(total);
    }
    constexpr int kPair = Count < 2 ? 1 : 2;
    for (int i = 0; i < Count; i += kPair)
        mix_values<kPair>(memory, dim, first_block, blocks, scores + i * stride, stride, out + i * dim);
    for (int i = 0; i < Count; i++)
        for (int d = 0; d < dim; d += kLanes) store(out + i * dim + d, load<Floats>(out + i * dim + d) * share[i]);
}

void attend(const Memory *memory, int dim, int count, const float *queries, const int64_t *first, const int64_t *last,
            float *scores, float *out) {
    while (count > 0) {
        const int now = count >= 8 ? 8 : count >= 4 ? 4 : count >= 2 ? 2 : 1;
        if (now == 8) attend_count<8>(memory, dim, queries, first, last, scores, out);
        else if (now == 4) attend_count<4>(memory, dim, queries, first, last, scores, out);
        else if (now == 2) attend_count<2>(memory, dim, queries, first, last, scores, out);
        else attend_count<1>(memory, dim, queries, first, last, scores, out);
        queries += now * dim, out += now * dim, first += now, last += now, count -= now;
    }
}

void swiglu(const float *gate, const float *up, int width, float limit, float *out) {
    for (int i = 0; i < width; i += kLanes) {
        const Floats g = smaller(load<Floats>(gate + i), spread(limit));
        const Floats u = smaller(larger(load<Floats>(up + i), spread(-limit)), spread(limit));
        store(out + i, g / (1.0f + exponential(-g)) * u);
    }
}

void add_scaled(float *x, float weight, const float *y, int size) {
    for (int i = 0; i < size; i += kLanes) store(x + i, load<Floats>(x + i) + load<Floats>(y + i) * weight);
}

uint32_t read_all(const uint8_t *memory, int64_t size) {
    Words a = {}, b = {}, c = {}, d = {};
    for (int64_t i = 0; i < size; i += 256) {
        a += load<Words>(memory + i);
        b += load<Words>(memory + i + 64);
        c += load<Words>(memory + i + 128);
        d += load<Words>(memory + i + 192);
    }
    a += b + c + d;
    uint32_t lanes[kLanes], sum = 0;
    store(lanes, a);
    for (uint32_t lane : lanes) sum += lane;
    return sum;
}

} // namespace
} // namespace maple
