// Holds every variant of the kernels to the plain one, on random and extreme inputs: exact where integers decide, close where floats
// do. For processors that no test machine has, it runs under an emulator. Prints a line a variant; exits with 1 at the first fault.
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "../../maple_spec/kernels/csrc/maple.h"

extern "C" const char *maple_variants();
extern "C" const maple::Kernels *maple_kernels(const char *variant);

using namespace maple;

static std::mt19937 draw(7);
static std::string where;

static int number(int low, int high) { return std::uniform_int_distribution<int>(low, high)(draw); }

static std::vector<float> floats(size_t count, float spread = 1) {
    std::vector<float> out(count);
    for (float &value : out) value = std::normal_distribution<float>(0, spread)(draw);
    return out;
}

static std::vector<int8_t> digits(size_t count) {
    std::vector<int8_t> out(count);
    const int kind = number(0, 2); // any, all at the lower end, all at the upper one
    for (int8_t &value : out) value = (int8_t)(kind == 0 ? number(-128, 127) : kind == 1 ? -128 : 127);
    return out;
}

static std::vector<uint8_t> codes(size_t count, bool ternary) {
    std::vector<uint8_t> out(count);
    for (uint8_t &value : out) {
        value = (uint8_t)number(0, 255);
        if (ternary) value = (uint8_t)(number(0, 3) == 0 ? 0xaa : (value & 0x55) | (number(0, 255) & 0xaa & ~(value << 1)));
    }
    return out;
}

static std::vector<uint16_t> bfloat16s(size_t count) {
    std::vector<uint16_t> out(count);
    for (uint16_t &value : out) value = (uint16_t)(0x3c00 + number(0, 0x1ff) + number(0, 1) * 0x8000);
    return out;
}

[[noreturn]] static void fail(const char *what) {
    std::printf("%s: %s differs\n", where.c_str(), what);
    std::exit(1);
}

template <class T> static void same(const char *what, const std::vector<T> &a, const std::vector<T> &b) {
    if (a.size() != b.size() || std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) != 0) fail(what);
}

static void close(const char *what, const std::vector<float> &a, const std::vector<float> &b, float tolerance) {
    float most = 1e-6f;
    for (float value : a) most = std::fmax(most, std::fabs(value));
    for (size_t i = 0; i < a.size(); i++)
        if (!(std::fabs(a[i] - b[i]) <= tolerance * most)) fail(what);
}

static void compare_products(const Kernels &k, const Kernels &plain) {
    const int groups = number(1, 3), columns = 16 * number(1, 40), planes = number(1, 2), rows = groups * kGroupRows, width = number(1, 8);
    const auto packed = codes((size_t)rows * columns / 4, true);
    const auto scale = floats(rows);
    const auto vector = digits((size_t)planes * columns), tile = digits((size_t)width * columns);
    const int sum = number(-100000, 100000);
    std::vector<float> a(rows), b(rows);
    k.ternary_rows(packed.data(), scale.data(), groups, columns, planes, vector.data(), 0.01f, sum, a.data());
    plain.ternary_rows(packed.data(), scale.data(), groups, columns, planes, vector.data(), 0.01f, sum, b.data());
    same("ternary_rows", a, b);
    std::vector<int32_t> c(width * kGroupRows), d(width * kGroupRows);
    k.ternary_tile(packed.data(), columns, width, (const int32_t *)tile.data(), c.data());
    plain.ternary_tile(packed.data(), columns, width, (const int32_t *)tile.data(), d.data());
    same("ternary_tile", c, d);
}

static void compare_heads(const Kernels &k, const Kernels &plain) {
    const int groups = number(1, 3), group_size = 16 << number(0, 3), parts = number(1, 4), columns = group_size * parts;
    const int bits = number(0, 1) ? 4 : 8, planes = number(1, 2), rows = groups * kHeadRows;
    const size_t part_bytes = (size_t)kHeadRows * group_size * bits / 8;
    std::vector<uint8_t> packed;
    for (int i = 0; i < groups * parts; i++) {
        const auto some = codes(part_bytes, false);
        const auto ends = bfloat16s(2 * kHeadRows);
        packed.insert(packed.end(), some.begin(), some.end());
        packed.insert(packed.end(), (const uint8_t *)ends.data(), (const uint8_t *)(ends.data() + ends.size()));
    }
    const auto vector = digits((size_t)planes * columns);
    std::vector<int32_t> sums(parts);
    for (int &value : sums) value = number(-100000, 100000);
    std::vector<float> a(rows), b(rows);
    k.affine_rows(packed.data(), groups, columns, group_size, bits, planes, vector.data(), sums.data(), 0.01f, a.data());
    plain.affine_rows(packed.data(), groups, columns, group_size, bits, planes, vector.data(), sums.data(), 0.01f, b.data());
    close("affine_rows", a, b, 1e-5f);
    const int vectors = number(1, 9), count = number(1, 20);
    const auto weights = bfloat16s((size_t)count * columns);
    const auto x = floats((size_t)vectors * columns);
    std::vector<float> c(vectors * count), d(vectors * count);
    k.bfloat16_rows(weights.data(), count, columns, vectors, x.data(), c.data(), count);
    plain.bfloat16_rows(weights.data(), count, columns, vectors, x.data(), d.data(), count);
    close("bfloat16_rows", c, d, 1e-5f);
}

static void compare_vectors(const Kernels &k, const Kernels &plain) {
    const int size = 16 * number(1, 30), planes = number(1, 2), half = number(0, size / 2);
    const auto x = floats(size, 10), y = floats(size, 10), cos = floats(size), sin = floats(size);
    std::vector<int8_t> digits_a(planes * size), digits_b(planes * size);
    std::vector<float> a(size + 1), b(size + 1);
    int32_t sum_a, sum_b;
    k.quantise(x.data(), size, planes, digits_a.data(), &a[size], &sum_a);
    plain.quantise(x.data(), size, planes, digits_b.data(), &b[size], &sum_b);
    same("quantise", digits_a, digits_b);
    if (sum_a != sum_b || a[size] != b[size]) fail("quantise");
    std::vector<int32_t> sums_a(size / 16), sums_b(size / 16);
    k.quantise_plain(x.data(), size, 16, planes, digits_a.data(), &a[size], sums_a.data());
    plain.quantise_plain(x.data(), size, 16, planes, digits_b.data(), &b[size], sums_b.data());
    same("quantise_plain", digits_a, digits_b);
    same("quantise_plain", sums_a, sums_b);
    k.norm(x.data(), y.data(), size, 1e-6f, a.data());
    plain.norm(x.data(), y.data(), size, 1e-6f, b.data());
    close("norm", a, b, 1e-5f);
    k.norm_and_turn(x.data(), y.data(), size, 1e-6f, cos.data(), sin.data(), half, 0.5f, a.data());
    plain.norm_and_turn(x.data(), y.data(), size, 1e-6f, cos.data(), sin.data(), half, 0.5f, b.data());
    close("norm_and_turn", a, b, 1e-5f);
    k.swiglu(x.data(), y.data(), size, 7, a.data());
    plain.swiglu(x.data(), y.data(), size, 7, b.data());
    close("swiglu", a, b, 1e-5f);
    a = b = x;
    k.add_scaled(a.data(), 0.3f, y.data(), size);
    plain.add_scaled(b.data(), 0.3f, y.data(), size);
    close("add_scaled", a, b, 1e-5f);
    const auto block = codes(256 * number(1, 4), false);
    if (k.read_all(block.data(), (int64_t)block.size()) != plain.read_all(block.data(), (int64_t)block.size())) fail("read_all");
}

struct OwnMemory {
    std::vector<int16_t> keys, values;
    std::vector<float> key_scale, value_scale;
    Memory memory;

    OwnMemory(int capacity, int dim)
        : keys(capacity * dim), values(capacity * dim), key_scale(capacity), value_scale(capacity),
          memory{keys.data(), key_scale.data(), values.data(), value_scale.data(), capacity} {}
};

static void compare_attention(const Kernels &k, const Kernels &plain) {
    const int dim = 16 * number(1, 8), capacity = 16 * number(2, 8), seen = number(1, 3 * capacity), count = number(1, 15);
    OwnMemory of_k(capacity, dim), of_plain(capacity, dim);
    for (int position = 0; position < seen; position++) {
        const auto key = floats(dim), value = floats(dim);
        k.remember(&of_k.memory, dim, position, key.data(), value.data());
        plain.remember(&of_plain.memory, dim, position, key.data(), value.data());
    }
    same("remember", of_k.keys, of_plain.keys);
    same("remember", of_k.values, of_plain.values);
    same("remember", of_k.key_scale, of_plain.key_scale);
    const auto queries = floats((size_t)count * dim, 0.5f);
    std::vector<int64_t> first(count), last(count);
    const int oldest = seen > capacity - 16 ? seen - capacity + 16 : 0; // blocks are whole: the newest must not reach the oldest
    for (int i = 0; i < count; i++) {
        first[i] = number(oldest, seen - 1);
        last[i] = number((int)first[i], seen - 1);
    }
    std::vector<float> a(count * dim), b(count * dim), scores(16 * (size_t)(capacity / 16 + 2) * count);
    k.attend(&of_k.memory, dim, count, queries.data(), first.data(), last.data(), scores.data(), a.data());
    plain.attend(&of_plain.memory, dim, count, queries.data(), first.data(), last.data(), scores.data(), b.data());
    close("attend", a, b, 1e-4f);
}

int main() {
    const std::string variants = maple_variants();
    const Kernels &plain = *maple_kernels("plain");
    for (size_t begin = 0; begin < variants.size(); begin = variants.find(',', begin) + 1) {
        where = variants.substr(begin, variants.find(',', begin) - begin);
        if (where == "plain") break;
        for (int round = 0; round < 200; round++) {
            compare_products(*maple_kernels(where.c_str()), plain);
            compare_heads(*maple_kernels(where.c_str()), plain);
            compare_vectors(*maple_kernels(where.c_str()), plain);
            compare_attention(*maple_kernels(where.c_str()), plain);
        }
        std::printf("%s is as plain\n", where.c_str());
    }
    return 0;
}
