// What the kernels of every instruction set and the forward pass above them share: formats, and the table of functions.
//
// Packed ternary matrix ("units of 32 rows by 16 columns"): rows are padded to 32 and columns to 16. A group of 32 rows is
// stored as columns / 16 units of 128 bytes, one after the other: 32 little-endian words, one a row. A word holds 16 codes,
// least significant first: bits 2j and 2j + 1 are column j of the unit. weight = row_scale * (code - 1), padding has code 1.
// One thread reads whole groups, so that it has a single stream of memory.
//
// Activations are fixed point: x ~ scale * q with |q| <= 127 in one plane of digits, or |q| <= 32512 in two, q = 256 high + low
// with both in int8. Digits are stored in the order in which the codes' bit fields meet them: byte 4f + b of a block of 16 is
// column 4b + f, so that a word of four digits belongs to the field f of each byte.
#pragma once

#include <cstddef>
#include <cstdint>

namespace maple {

constexpr int kLanes = 16;       // floats of a vector; all sums run over lanes in this order on every machine
constexpr int kGroupRows = 32;   // rows of a group of packed ternary rows
constexpr int kUnitColumns = 16; // columns of a unit
constexpr int kTile = 8;         // planes of digits that one pass over a group's codes serves
constexpr int kQueries = 8;      // queries that attend() reads the keys for at once
constexpr int kHeadRows = 16;    // rows of a group of packed head rows

// Keys and values of one key-value head at one layer, as fixed point with a scale a position. Position p lies in slot
// p % capacity; capacity is a multiple of 16. keys: blocks of 16 positions, [capacity / 16][dim][16]; values: [capacity][dim].
struct Memory {
    int16_t *keys;
    float *key_scale;
    int16_t *values;
    float *value_scale;
    int64_t capacity;
};

// One instruction set. A function's results depend on its arguments alone, and all its sums have a fixed order.
struct Kernels {
    const char *name;

    // x [columns] -> planes of digits (planes * columns bytes), with x ~ scale * q and sum = the sum of all q.
    void (*quantise)(const float *x, int columns, int planes, int8_t *digits, float *scale, int32_t *sum);

    // The same with the digits in plain order, and a sum for each group of columns: what affine_rows takes.
    void (*quantise_plain)(const float *x, int columns, int group_size, int planes, int8_t *digits, float *scale, int32_t *sums);

    // y [32 * groups] = (codes - 1) q * scale * row_scale, for one vector.
    void (*ternary_rows)(const uint8_t *codes, const float *row_scale, int groups, int columns, int planes,
                         const int8_t *digits, float scale, int32_t sum, float *y);

    // sums [width][32] = codes q for one group and width <= kTile planes; tile: words of digits, [columns / 4][width].
    void (*ternary_tile)(const uint8_t *codes, int columns, int width, const int32_t *tile, int32_t *sums);

    // y [32] = (sums - sum) * scale * row_scale; sums of one plane, or of two (high, then low, 32 apart).
    void (*finish)(const int32_t *sums, int planes, float scale, int32_t sum, const float *row_scale, float *y);

    // y [16 * groups] = code * scale + bias weights in groups of group_size columns, times q * x_scale. bits: 4 or 8.
    // A group of 16 rows holds, for each group of columns, bits * group_size * 2 bytes of codes, 16 scales, 16 biases (bfloat16).
    // digits: plain order, planes * columns bytes; sums: the sum of q over each group of columns.
    void (*affine_rows)(const uint8_t *rows, int groups, int columns, int group_size, int bits, int planes, const int8_t *digits,
                        const int32_t *sums, float x_scale, float *y);

    // y [vectors][y_stride], of each the first count = weights x; weights bfloat16 [count][columns], x [vectors][columns].
    void (*bfloat16_rows)(const uint16_t *weights, int count, int columns, int vectors, const float *x, float *y, int y_stride);

    // out = weight * x / sqrt(mean(x^2) + eps)
    void (*norm)(const float *x, const float *weight, int size, float eps, float *out);

    // The same for a head, then turned: dimension j < half with j + half by the angle whose cos and sin are given; factor last.
    void (*norm_and_turn)(const float *x, const float *gain, int size, float eps, const float *cos, const float *sin, int half,
                          float factor, float *out);

    // Keep key and value [dim] of a position.
    void (*remember)(const Memory *memory, int dim, int64_t position, const float *key, const float *value);

    // out [count][dim] = softmax(queries keys) values over positions first[i] .. last[i]; scores: scratch, 16 floats for each
    // block of 16 positions from the least first to the greatest last, times count.
    void (*attend)(const Memory *memory, int dim, int count, const float *queries, const int64_t *first, const int64_t *last,
                   float *scores, float *out);

    // out [width] = silu(min(gate, limit)) * clamp(up, limit)
    void (*swiglu)(const float *gate, const float *up, int width, float limit, float *out);

    // x [size] += weight * y
    void (*add_scaled)(float *x, float weight, const float *y, int size);

    // The sum of the 32-bit words, whose only purpose is that all of the memory is read; size is a multiple of 256.
    uint32_t (*read_all)(const uint8_t *memory, int64_t size);
};

// The variants that this build holds; a null pointer where the processor cannot run it.
const Kernels *plain_kernels();
const Kernels *avx2_kernels();
const Kernels *avx512_kernels();
const Kernels *neon_kernels();

} // namespace maple
