/* CRC-32 as zlib has it, by multiplication without carry: sixteen bytes where a table takes one.
 *
 * A CRC is the remainder of a polynomial. Sixteen bytes that stand 64 bytes before others may be
 * replaced by what is congruent to them there: each half times x to the power of its distance,
 * reduced. So a long text is folded into sixteen bytes with the same remainder, which checksum.py
 * gives to zlib. Powers are in zlib's order of bits, the lowest power highest, one place further up.
 */

#include <stdint.h>

#if defined(__x86_64__) && defined(__GNUC__)

#include <immintrin.h>

#define CLMUL __attribute__((target("pclmul,sse4.1")))
#define ALWAYS_INLINE __attribute__((always_inline)) static inline

int fold_works(void) {
    return __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.1");
}

CLMUL ALWAYS_INLINE __m128i sixteen(const uint8_t *at) {
    return _mm_loadu_si128((const __m128i *)at);
}

/* What stood before `next`, as far away as the powers say, and `next`. */
CLMUL ALWAYS_INLINE __m128i folded(__m128i before, __m128i powers, __m128i next) {
    __m128i low = _mm_clmulepi64_si128(before, powers, 0x00);
    __m128i high = _mm_clmulepi64_si128(before, powers, 0x11);
    return _mm_xor_si128(_mm_xor_si128(low, high), next);
}

/* Fold as much as can be of `size` bytes, at least 64, into sixteen; returns how many it were.
 *
 * state: the remainder of what came before, as zlib keeps it inside.
 */
CLMUL int64_t fold(const uint8_t *data, int64_t size, uint32_t state, uint8_t *result) {
    const __m128i by64 = _mm_set_epi64x(0x1c6e41596, 0x154442bd4); /* x^480, x^544 */
    const __m128i by16 = _mm_set_epi64x(0x0ccaa009e, 0x1751997d0); /* x^96, x^160 */
    __m128i one = _mm_xor_si128(sixteen(data), _mm_cvtsi32_si128((int32_t)state));
    __m128i two = sixteen(data + 16), three = sixteen(data + 32), four = sixteen(data + 48);
    int64_t at = 64;
    for (; at + 64 <= size; at += 64) { /* four at a time, which do not wait for each other */
        one = folded(one, by64, sixteen(data + at));
        two = folded(two, by64, sixteen(data + at + 16));
        three = folded(three, by64, sixteen(data + at + 32));
        four = folded(four, by64, sixteen(data + at + 48));
    }
    one = folded(folded(folded(one, by16, two), by16, three), by16, four);
    for (; at + 16 <= size; at += 16) one = folded(one, by16, sixteen(data + at));
    _mm_storeu_si128((__m128i *)result, one);
    return at;
}

#else

int fold_works(void) { return 0; }

int64_t fold(const uint8_t *data, int64_t size, uint32_t state, uint8_t *result) {
    (void)data, (void)size, (void)state, (void)result;
    return 0;
}

#endif
