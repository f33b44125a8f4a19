// The float kernels, written once over vectors of 16 lanes; each instruction set's file includes this and gets its own copy.
//
// The compiler maps the vectors to whatever registers the file is compiled for. Sums run over the lanes in a fixed order and
// are folded by a fixed tree, so that a result never depends on how many threads or tokens there are.
#pragma once

#include <cmath>
#include <cstring>

#include "maple.h"

namespace maple {
namespace {

typedef float Floats __attribute__((vector_size(64)));
typedef int32_t Ints __attribute__((vector_size(64)));
typedef uint32_t Words __attribute__((vector_size(64)));
typedef int16_t Shorts __attribute__((vector_size(32)));
typedef uint16_t Halves __attribute__((vector_size(32)));

template <class Vector, class T> inline Vector load(const T *from) {
    Vector vector;
    std::memcpy(&vector, from, sizeof vector);
    return vector;
}

template <class Vector, class T> inline void store(T *to, Vector vector) { std::memcpy(to, &vector, sizeof vector); }

inline Floats spread(float value) { return value - Floats{}; }

inline Floats from_bfloat16(const uint16_t *from) {
    return (Floats)(__builtin_convertvector(load<Halves>(from), Words) << 16);
}

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

inline Floats larger(Floats a, Floats b) { return a > b ? a : b; }
inline Floats smaller(Floats a, Floats b) { return a < b ? a : b; }

// e^x to about 2 units in the last place: x = n ln 2 + f, a polynomial in f, and n added to the exponent.
inline Floats exponential(Floats x) {
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
    return p * (Floats)((__builtin_convertvector(n, Ints) + 127) << 23);
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

// To the nearest integer, halves to even.
inline Ints nearest(Floats x) {
    const float round_to_integer = 12582912.0f;
    return __builtin_convertvector((x + round_to_integer) - round_to_integer, Ints);
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
    int32_t sum = 0;
    for (int i = 0; i < kLanes; i++) sum += v[i];
    return sum;
}

typedef int8_t Digits __attribute__((vector_size(16)));

inline Digits digits_of(Ints v) { return __builtin_convertvector(v, Digits); }

// Columns of a block in the order of the codes' fields: a transpose of four by four.
inline Digits by_field(Digits v) {
    return __builtin_shufflevector(v, v, 0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
}

void quantise(const float *x, int columns, int planes, int8_t *digits, float *scale, int32_t *sum) {
    Ints total = {};
    *scale = fixed_point(x, columns, planes, [&](int i, Ints q, Ints high, Ints low) {
        total += q;
        store(digits + i, by_field(digits_of(high)));
        if (planes == 2) store(digits + columns + i, by_field(digits_of(low)));
    });
    *sum = fold_sum(total);
}

void quantise_plain(const float *x, int columns, int group_size, int planes, int8_t *digits, float *scale, int32_t *sums) {
    for (int g = 0; g < columns / group_size; g++) sums[g] = 0;
    *scale = fixed_point(x, columns, planes, [&](int i, Ints q, Ints high, Ints low) {
        sums[i / group_size] += fold_sum(q);
        store(digits + i, digits_of(high));
        if (planes == 2) store(digits + columns + i, digits_of(low));
    });
}

void finish(const int32_t *sums, int planes, float scale, int32_t sum, const float *row_scale, float *y) {
    for (int r = 0; r < kGroupRows; r += kLanes) {
        Ints total = load<Ints>(sums + r);
        if (planes == 2) total = total * 256 + load<Ints>(sums + kGroupRows + r);
        store(y + r, __builtin_convertvector(total - sum, Floats) * scale * load<Floats>(row_scale + r));
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
    for (; vectors >= 4; vectors -= 4, x += 4 * columns, y += 4 * y_stride)
        bfloat16_rows_of<4>(weights, count, columns, x, y, y_stride);
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
        store(values + i, __builtin_convertvector(nearest(load<Floats>(value + i) * (1.0f / value_step)), Shorts));
    }
    memory->key_scale[slot] = key_step;
    memory->value_scale[slot] = value_step;
}

// Scores of `Count` queries against one block of 16 positions.
template <int Count>
inline void score_block(const int16_t *keys, int dim, const float *queries, Floats *scores) {
    Floats sum[Count] = {};
    for (int d = 0; d < dim; d++) {
        const Floats key = __builtin_convertvector(load<Shorts>(keys + d * kLanes), Floats);
        for (int i = 0; i < Count; i++) sum[i] += key * queries[i * dim + d];
    }
    for (int i = 0; i < Count; i++) scores[i] = sum[i];
}

// out [Count][dim] = the weighted sum of the values of all blocks; weights hold 16 floats a block for each query.
template <int Count>
inline void mix_values(const Memory *memory, int dim, int64_t first_block, int64_t blocks, const float *weights, int64_t stride,
                       float *out) {
    const int64_t ring = memory->capacity / kLanes;
    for (int d = 0; d < dim; d += 4 * kLanes) {
        const int parts = (dim - d < 4 * kLanes ? dim - d : 4 * kLanes) / kLanes;
        Floats sum[Count][4] = {};
        for (int64_t b = 0; b < blocks; b++) {
            const int16_t *values = memory->values + ((first_block + b) % ring) * kLanes * dim + d;
            for (int p = 0; p < kLanes; p++, values += dim)
                for (int part = 0; part < parts; part++) {
                    const Floats value = __builtin_convertvector(load<Shorts>(values + part * kLanes), Floats);
                    for (int i = 0; i < Count; i++) sum[i][part] += value * weights[i * stride + b * kLanes + p];
                }
        }
        for (int i = 0; i < Count; i++)
            for (int part = 0; part < parts; part++) store(out + i * dim + d + part * kLanes, sum[i][part]);
    }
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
    Ints lane;
    for (int i = 0; i < kLanes; i++) lane[i] = i;
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
                const Ints inside = (lane >= (int32_t)(low < 0 ? 0 : low > kLanes ? kLanes : low)) &
                                    (lane <= (int32_t)(high < 0 ? -1 : high > kLanes ? kLanes : high));
                s = inside ? s : spread(-INFINITY);
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
            const Floats weight = behind > -50.0f ? exponential(behind) : Floats{};
            total += weight;
            store(at, weight == 0.0f ? Floats{} : weight * load<Floats>(memory->value_scale + ((first_block + b) % ring) * kLanes));
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
    uint32_t sum = 0;
    for (int i = 0; i < kLanes; i++) sum += a[i];
    return sum;
}

} // namespace
} // namespace maple
